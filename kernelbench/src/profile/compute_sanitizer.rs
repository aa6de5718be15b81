//! compute-sanitizer: does a candidate touch memory on the GPU that is not its own, race, read what nobody wrote, or misuse a
//! barrier (PEAK §3.3)?
//!
//! Over one call in a process that does nothing else, where each array or tensor has an allocation of its own: what a
//! framework's cache lets pass is found there.

/// What begins a line of the tool's.
const MARK: &str = "=========";
/// What its lines begin with that tell a finding.
const FINDINGS: [&str; 10] = [
    "Error: Race reported ",
    "Barrier error detected",
    "Invalid ",
    "Misaligned ",
    "Out-of-range ",
    "Out-of-bounds ",
    "Program hit ",
    "Malloc/Free error",
    "Leaked ",
    "Uninitialized ",
];

/// One of its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Accesses outside allocations.
    Memcheck,
    /// Accesses of shared memory that no barrier keeps apart.
    Racecheck,
    /// Reads of memory that was never written.
    Initcheck,
    /// Barriers that not all threads come to.
    Synccheck,
}

impl Tool {
    /// All of them. All but memcheck follow every access of one kind, and are for small shapes.
    pub(crate) const ALL: [Self; 4] = [Self::Memcheck, Self::Racecheck, Self::Initcheck, Self::Synccheck];

    /// As its command line names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Racecheck => "racecheck",
            Self::Initcheck => "initcheck",
            Self::Synccheck => "synccheck",
        }
    }

    /// What it looks at, for failures.
    pub(crate) fn watches(self) -> &'static str {
        match self {
            Self::Memcheck => "GPU memory",
            Self::Racecheck => "races in shared memory",
            Self::Initcheck => "GPU memory that was never written",
            Self::Synccheck => "barriers",
        }
    }

    /// Its command line, before that of the program.
    pub(crate) fn command(self) -> Vec<String> {
        ["compute-sanitizer", "--tool", self.name(), "--print-limit", "3"].map(str::to_owned).to_vec()
    }
}

/// The first finding in what it printed, if there is any; in words where it did not look through to the end.
pub(crate) fn finding(printed: &str) -> Result<Option<String>, String> {
    let lines: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::trim).collect();
    if let Some(at) = lines.iter().position(|line| FINDINGS.iter().any(|start| line.starts_with(start))) {
        let more = lines[at + 1..].iter().take_while(|line| !line.is_empty()).take(3);
        return Ok(Some(std::iter::once(&lines[at]).chain(more).copied().collect::<Vec<_>>().join("; ")));
    }
    let summary = lines.iter().find_map(|line| line.strip_prefix("ERROR SUMMARY: "));
    // Warnings of racecheck are of writes of the same value.
    let hazards = lines.iter().find_map(|line| line.strip_prefix("RACECHECK SUMMARY: "));
    let summary = summary.or(hazards.map(|hazards| if hazards.contains("(0 errors") { "0 errors" } else { hazards }));
    match summary {
        Some(summary) if summary.starts_with("0 ") => Ok(None),
        Some(summary) => Ok(Some(summary.to_owned())),
        None => {
            let last = printed.lines().rev().find(|line| !line.trim_matches(['=', ' ']).is_empty());
            Err(format!("compute-sanitizer: {}", last.unwrap_or("it printed nothing").trim()))
        }
    }
}

/// What begins what is said of a call that did not come to its end, so that there was nothing to find.
pub(crate) const NOT_ENDED: &str = "the call did not come to its end";
/// The most characters of what such a process said last.
const LAST_WORDS: usize = 300;

/// The same of a process that says `done` when its call has come to its end.
pub(crate) fn finding_in_whole_call(printed: &str, done: &str) -> Result<Option<String>, String> {
    match finding(printed)? {
        None if !printed.lines().any(|line| line == done) => {
            let said = printed.lines().rev().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('='));
            let said = said.map(|line| format!(": {}", line.chars().take(LAST_WORDS).collect::<String>()));
            Err(format!("{NOT_ENDED}{}", said.unwrap_or_default()))
        }
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As compute-sanitizer 2025.3 prints it.
    const FOUND: &str = "========= COMPUTE-SANITIZER\n========= Invalid __global__ read of size 4 bytes\n=========     at softplus_k+0x1b0 in module.py:9\n=========     by thread (0,0,0) in block (0,0,0)\n=========     Access at 0x7f0000200000 is out of bounds\n=========\n=========     Saved host backtrace\ndone 1\n========= ERROR SUMMARY: 1 error\n";

    #[test]
    fn a_finding_is_said_with_its_place_and_a_clean_run_is_clean() {
        let finding_there = finding(FOUND).unwrap().unwrap();
        assert!(finding_there.starts_with("Invalid __global__ read of size 4 bytes; at softplus_k"), "{finding_there}");
        assert_eq!(finding("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"), Ok(None));
        assert!(finding("compute-sanitizer: not found").unwrap_err().contains("not found"));
    }

    /// As compute-sanitizer 2025.3 prints them.
    #[test]
    fn a_race_is_a_finding_and_a_warning_is_none() {
        let race = "========= COMPUTE-SANITIZER\n========= Error: Race reported between Write access at k+0x130 in k.cu:9\n\
                    =========     and Read access at k+0x1d0 in k.cu:11 [32 hazards]\n=========\n\
                    ========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n";
        let found = finding(race).unwrap().unwrap();
        assert!(
            found.starts_with("Error: Race reported between Write access at k+0x130 in k.cu:9; and Read"),
            "{found}"
        );
        let warned = "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n";
        assert_eq!(finding(warned), Ok(None));
        let clean = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n";
        assert_eq!(finding(clean), Ok(None));
        let untold = "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n";
        assert!(finding(untold).unwrap().unwrap().contains("2 errors"));
    }

    #[test]
    fn only_a_call_that_came_to_its_end_under_the_tool_is_clean() {
        let clean = "========= COMPUTE-SANITIZER\ndone 1\n========= ERROR SUMMARY: 0 errors\n";
        assert_eq!(finding_in_whole_call(clean, "done 1"), Ok(None));
        let early = "========= COMPUTE-SANITIZER\nTypeError: no line\n\n========= ERROR SUMMARY: 0 errors\n";
        let said = finding_in_whole_call(early, "done 2").unwrap_err();
        assert_eq!(said, "the call did not come to its end: TypeError: no line");
        let silent = early.replace("TypeError: no line\n", "");
        assert_eq!(finding_in_whole_call(&silent, "done 2"), Err(NOT_ENDED.to_owned()), "it ended before its call did");
        assert!(finding_in_whole_call("done 1\n", "done 1").is_err(), "the tool said nothing");
        let missing = finding_in_whole_call("cannot start compute-sanitizer: No such file\n", "done 1");
        assert!(missing.unwrap_err().contains("No such file"));
    }
}
