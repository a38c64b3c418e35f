"""What every op needs: the tape, tensors, modes, declarations and the walk. No room is below this one.

In the order of reading:

    tape         the flat Wengert tape: columns of records, and which of them are alive
    mode         whether anything is recorded
    storage      memory behind tensors: owners, versions, stand-ins of a trace
    tensor       the array that users hold; `attached` lists the methods that declarations give it
    domain       where an op is smooth, for its samples
    primitive    the declaration of an op, and how a call of it is recorded
    signatures   what editors show of functions that are made; `synonyms`: PyTorch's names of arguments
    views        how a view lies in its base
    dual         tangents that travel with values
    sweep        the reference executor: rules in NumPy, no compiler
    executors    one walk over one tape or several, by the executor that fits
    overwriting  copies of saved values that are about to be overwritten
    packing      trees of arguments as operands of one op
    lifetime     what lives as long as an entry of a tape
    closures     what functions close over
    seams        what this room and the next ask of rooms above

Habits of the whole library: `version`, `locks` (which a fork resets), `handlers` (of signals, and what they raise), `logs`, `headroom`
(imports under a memory limit), `processor` (for which code is made), `checking` (checked mode), `markup` (HTML of reports), `elsewhere`
(names of other libraries).
"""
