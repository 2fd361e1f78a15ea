"""PPO's update of MLP policies in C, where a compiler was at hand at installation.

``ppo_update.c`` and the headers beside it are all there is of it; ``build.py`` compiles it, ``library.py`` finds what
came out, ``check.py`` holds that to torch before anything is learned with it, ``ppo.py`` is the kernel.
"""
