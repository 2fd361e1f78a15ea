// Gymnasium's CartPole-v1: the same numbers, step by step, as in Python.
const GRAVITY = 9.8, POLE_MASS = 0.1, TOTAL_MASS = 1.1, HALF_LENGTH = 0.5, FORCE = 10, STEP_S = 0.02;
export const X_LIMIT = 2.4, ANGLE_LIMIT = (12 * 2 * Math.PI) / 360, MAX_STEPS = 500;

export class CartPole {
  // state: position and velocity of the cart, angle and angular velocity of the pole.
  reset(state = Array.from({ length: 4 }, () => Math.random() * 0.1 - 0.05)) {
    this.state = [...state];
    this.steps = 0;
    return this.observe();
  }

  observe() {
    return Float32Array.from(this.state);
  }

  // action: 0 pushes the cart to the left, 1 to the right.
  step(action) {
    const [x, velocity, angle, spin] = this.state, sin = Math.sin(angle), cos = Math.cos(angle);
    const pull = ((action === 1 ? FORCE : -FORCE) + POLE_MASS * HALF_LENGTH * spin * spin * sin) / TOTAL_MASS;
    const turn = (GRAVITY * sin - cos * pull) / (HALF_LENGTH * (4 / 3 - (POLE_MASS * cos * cos) / TOTAL_MASS));
    const push = pull - (POLE_MASS * HALF_LENGTH * turn * cos) / TOTAL_MASS;
    this.state = [x + STEP_S * velocity, velocity + STEP_S * push, angle + STEP_S * spin, spin + STEP_S * turn];
    this.steps += 1;
    const terminated = Math.abs(this.state[0]) > X_LIMIT || Math.abs(this.state[2]) > ANGLE_LIMIT;
    return { observation: this.observe(), reward: 1, terminated, truncated: this.steps >= MAX_STEPS };
  }

  // Gives the pole a push, as a visitor of the page does.
  nudge(spin) {
    this.state[3] += spin;
  }
}
