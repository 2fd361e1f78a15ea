import math

import pytest
import torch

from trainer_service.ops import distributions as dist


def test_joint_density_is_the_product_over_dimensions() -> None:
    value, mean, sigma = torch.randn(4, 3), torch.randn(4, 3), torch.rand(3) + 0.5
    expected = torch.distributions.Normal(mean, sigma).log_prob(value).sum(dim=-1)
    torch.testing.assert_close(dist.gaussian_log_prob(value, mean, sigma.log()), expected)


def test_a_number_that_a_row_lacks_has_no_density() -> None:
    value, mean, log_sigma = torch.tensor([[0.3, 7.0]]), torch.zeros(1, 2), torch.tensor([[0.1, -0.4]])
    lacking = dist.gaussian_log_prob(value, mean, log_sigma, torch.tensor([[1.0, 0.0]]))
    torch.testing.assert_close(lacking, dist.gaussian_log_prob(value[:, :1], mean[:, :1], log_sigma[:, :1]))


def test_divergence_of_gaussians_by_hand() -> None:
    # From N(0, 1) to N(1, 2²): ln 2 + (1 + 1)/(2·4) − ½.
    old, new = torch.zeros(1, 1), torch.ones(1, 1)
    divergence = dist.gaussian_kl(old, torch.zeros(1), new, torch.tensor([math.log(2.0)]))
    assert float(divergence) == pytest.approx(math.log(2.0) + 0.25 - 0.5)


def test_divergence_of_gaussians_counts_what_a_row_has() -> None:
    old, new, spread = torch.randn(4, 3), torch.randn(4, 3), torch.rand(2, 3)
    has = torch.tensor([[1.0, 0.0, 1.0]]).expand(4, 3)
    every = torch.distributions.kl_divergence(
        torch.distributions.Normal(old, spread[0].exp()), torch.distributions.Normal(new, spread[1].exp())
    )
    torch.testing.assert_close(dist.gaussian_kl(old, spread[0], new, spread[1]), every.sum(dim=1))
    torch.testing.assert_close(
        dist.gaussian_kl(old, spread[0], new, spread[1], has), every[:, ::2].sum(dim=1)
    )


def test_divergence_of_choices_is_the_sum_over_branches() -> None:
    allowed = torch.tensor([[True, False, True, True, True]]).expand(6, 5)
    old, new = (dist.masked_log_softmax(torch.randn(6, 5), allowed, (3, 2)) for _ in range(2))
    expected = sum(
        torch.distributions.kl_divergence(
            *(torch.distributions.Categorical(logits=each[:, some]) for each in (old, new))
        )
        for some in (torch.tensor([0, 2]), torch.tensor([3, 4]))
    )
    torch.testing.assert_close(dist.categorical_kl(old, new), expected)


def test_masked_probabilities_by_hand() -> None:
    probabilities = dist.masked_log_softmax(
        torch.tensor([[1.0, 0.0, -1.0, 2.0]]), torch.tensor([[True, True, False, True]]), (4,)
    ).exp()
    torch.testing.assert_close(
        probabilities, torch.tensor([[0.244728, 0.090031, 0, 0.665241]]), atol=1e-6, rtol=0
    )


def test_a_branch_without_any_allowed_choice_is_uniform_and_finite() -> None:
    log_probs = dist.masked_log_softmax(torch.randn(1, 4), torch.zeros(1, 4, dtype=torch.bool), (4,))
    torch.testing.assert_close(log_probs.exp(), torch.full((1, 4), 0.25))


def test_draws_follow_the_probabilities() -> None:
    generator = torch.Generator().manual_seed(1)
    log_probs = torch.tensor([[0.7, 0.2, 0.1]]).log().expand(200_000, 3)
    counts = torch.bincount(dist.sample_categorical(log_probs, (3,), generator)[:, 0], minlength=3)
    torch.testing.assert_close(counts / 200_000, torch.tensor([0.7, 0.2, 0.1]), atol=0.005, rtol=0)


def test_joint_choice_and_entropy_by_hand() -> None:
    log_probs = torch.tensor([[0.5, 0.5, 0.25, 0.75]]).log()
    indices = torch.tensor([[1, 1]]) + torch.tensor(dist.choice_offsets((2, 2)))
    assert float(dist.categorical_log_prob(log_probs, indices)) == pytest.approx(math.log(0.5 * 0.75))
    expected = math.log(2) - 0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert float(dist.categorical_entropy(log_probs)) == pytest.approx(expected)


def test_choices_become_ones_among_zeros() -> None:
    # Branches of 2 and 3: choices 1 and 0, then 0 and 2.
    hot = dist.one_hot(torch.tensor([[1, 2], [0, 4]]), 5)
    assert hot.tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
