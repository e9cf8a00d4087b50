"""What `downside` alone shows: the commands that matter in the first minute."""

_COMMANDS = (
    (
        "train an agent for the worst 20%, and value it in fresh episodes",
        'downside train downside/MeanReversion-v0 --risk "cvar(0.2)"',
    ),
    ("write a page about it that a risk officer can read", "downside report RUN --open"),
    (
        "how good could it be? the optimum, without learning",
        'downside solve downside/MeanReversion-v0 --risk "cvar(0.2)"',
    ),
    (
        "what does caution cost? agents from the mean to the worst 10%",
        "downside frontier downside/Hedging-v0 --agent pgsrm",
    ),
    ("what each step of an episode optimises", "downside explain RUN"),
)


def welcome() -> None:
    """Prints the commands with an example of each."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(
        "[bold]downside[/bold]: reinforcement learning that optimises what happens when things go "
        "badly\n"
    )
    for purpose, example in _COMMANDS:
        console.print(f"  {purpose}", markup=False)
        console.print(f"    [bold]{example}[/bold]\n")
    console.print(
        "`downside envs` and `downside risks` list what there is; `downside --help` lists"
    )
    console.print("all commands, `downside COMMAND --help` their options.", markup=False)
