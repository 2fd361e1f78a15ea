"""PPO's update of MLP policies and SAC's gradient step in C, compiled at installation if a compiler is available.

``ppo_update.c`` and the headers beside it are the source. ``build.py`` compiles it, ``library.py`` loads the library,
``check.py`` compares it with torch before use, and ``ppo.py`` and ``sac.py`` are the kernels.
"""
