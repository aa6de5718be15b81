//! Does it touch memory on the GPU that is not its own?
//!
//! `compute-sanitizer` over one call in a process that does nothing else, where each array has an allocation of its own.

use super::cuda::Called;
use crate::result::{error::Attempt, failure::Failure};

/// What its lines begin with.
const MARK: &str = "=========";

/// Runs one call under the sanitizer. A finding is a failure; in words why there is none to be had here.
pub(crate) fn sanitize(called: &Called<'_>) -> Attempt<Result<(), String>> {
    let tool = ["compute-sanitizer", "--tool", "memcheck", "--print-limit", "3"].map(str::to_owned);
    match called.under(None, &tool, read)? {
        Err(why) => Ok(Err(why)),
        Ok((None, _)) => Ok(Ok(())),
        Ok((Some(finding), _)) => Err(Failure::Sanitizer { tool: "GPU memory".to_owned(), finding }.into()),
    }
}

/// The first finding in what it printed, if there is any; in words where it did not come to its end.
fn read(printed: &str) -> Result<Option<String>, String> {
    let lines: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::trim).collect();
    let summary = lines.iter().find_map(|line| line.strip_prefix("ERROR SUMMARY: "));
    let last = || printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
    let summary = summary.ok_or_else(|| format!("compute-sanitizer: {}", last().trim()))?;
    if summary.starts_with("0 ") {
        return Ok(None);
    }
    let said = lines.iter().skip_while(|line| !is_finding(line));
    let told: Vec<&str> = said.take_while(|line| !line.is_empty()).take(4).copied().collect();
    Ok(Some(if told.is_empty() { summary.to_owned() } else { told.join("; ") }))
}

fn is_finding(line: &str) -> bool {
    ["Invalid", "Program hit", "Out-of-bounds", "Misaligned", "Leaked", "Uninitialized"]
        .iter()
        .any(|w| line.starts_with(w))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_told_with_its_place_and_a_clean_run_is_clean() {
        let clean = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n";
        assert_eq!(read(clean), Ok(None));
        let found = "========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 2 bytes\n\
                     =========     at rows(__half *)+0x90\n=========     by thread (3,0,0) in block (0,0,0)\n=========\n\
                     ========= ERROR SUMMARY: 1 error\n";
        let finding =
            "Invalid __global__ write of size 2 bytes; at rows(__half *)+0x90; by thread (3,0,0) in block (0,0,0)";
        assert_eq!(read(found), Ok(Some(finding.to_owned())));
        assert!(read("compute-sanitizer: not found").unwrap_err().contains("not found"));
    }
}
