"""How holdfast is attacked, and who judges: tools of the tests, which users do not install.

    simulation/   fleets in virtual time, from a seed                          make simulate
    explorer/     every run of a few clients, up to a bound                    make explore
    stage/        a store of its own for a run, with all that faults act on ─┐
    traffic/      worker processes that use its locks, turn by turn          │
    faults/       what is done to both, and when                             ├ make proof
    histories/    what all of them write down: calls, audit, faults          │
    checkers/     two judges of a history: order and linear                  │
    report/       a page and a few lines about a run                        ─┘
    mutants/      planted flaws, each of which a check has to notice           make mutants

`run` is one run of the proof, and ``python -m proof`` makes several. docs/concepts/proof.md explains the
method and what it does not prove. The database servers come from `tests.servers`.
"""
