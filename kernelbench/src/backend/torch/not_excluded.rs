//! The kinds of cheat that this workshop does not exclude: those that `docs/BIAS-kernelbench.md` calls open, by
//! their numbers there. Every certificate names them.

/// Kinds that are not excluded.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Their numbers in the catalogue.
    pub kinds: &'static [u32],
    /// What they are.
    pub what: &'static str,
    /// What was done against them, and how far it reaches.
    pub how: &'static str,
}

/// All of them.
pub const OPEN: [Open; 7] = [
    Open {
        kinds: &[1],
        what: "an end that is told before the GPU is done",
        how: "work of ours behind it on the GPU is timed too, and secret places of the output are read at once and again later; \
              what the GPU does between the end of a time slice and that look is gained",
    },
    Open {
        kinds: &[2],
        what: "work on the processor, and copies from and to it, before the clock starts",
        how: "on a GPU a process is resumed 0.6 ms before that, for its launches; a request lasts 20 ms, or as long as 128 calls",
    },
    Open {
        kinds: &[7],
        what: "work of several calls done in one",
        how: "calls much shorter than 20 ms are timed several to a request",
    },
    Open {
        kinds: &[8],
        what: "inputs that are kept in the second-level cache",
        how: "it is overwritten before each sample, which may not reach what a candidate keeps there on purpose",
    },
    Open {
        kinds: &[20, 21, 23],
        what: "another kernel than it seems does the work",
        how: "its time counts, whatever makes it; a profile names the kernels",
    },
    Open {
        kinds: &[27, 34],
        what: "a result that rests on the default weights or on the range of the inputs",
        how: "weights are those of the constructor; inputs are tried once between -3 and 3",
    },
    Open {
        kinds: &[49],
        what: "a candidate that tells tests from use",
        how: "it was seen on what get_inputs() draws, and once on a wider range",
    },
];

/// What is not looked at, beside these.
const NOT_LOOKED_AT: [(&str, &str); 3] = [
    ("races on the GPU", "compute-sanitizer's racecheck is not run"),
    ("speedup against torch.compile", "what is certified is against eager torch; `--baselines` times others beside"),
    ("another machine's times", "processes on this device were measured"),
];

/// What a certificate names: what, and why not.
pub(super) fn all() -> Vec<(&'static str, &'static str)> {
    OPEN.iter().map(|open| (open.what, open.how)).chain(NOT_LOOKED_AT).collect()
}
