//! Which run is meant?
//!
//! A path, or where there is none: `latest`, or a part of a name that one run alone has.

use super::StoreError;
use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The files that make a folder one of ours, of a run or of an ablation.
const MARKS: [&str; 2] = ["run.toml", "ablation.toml"];

/// The folder that is meant by this name, among the runs in `root`.
///
/// # Errors
///
/// If no run or several are called so.
pub fn find(root: &Path, name: &Path) -> Result<PathBuf, StoreError> {
    let text = name.to_string_lossy();
    if name.exists() || text.contains('/') {
        return Ok(name.to_owned());
    }
    let mut known = runs(root)?;
    if text == "latest" {
        let nothing = || StoreError::damaged(root, "there is no run here that could be the latest");
        return known.pop().ok_or_else(nothing);
    }
    known.retain(|run| run.file_name().is_some_and(|own| own.to_string_lossy().contains(&*text)));
    let exact = known.iter().find(|run| run.file_name() == Some(name.as_os_str()));
    match (exact, known.as_slice()) {
        (Some(exact), _) => Ok(exact.clone()),
        (None, [one]) => Ok(one.clone()),
        // As what it looks like: a folder that is not there.
        (None, []) => Ok(name.to_owned()),
        (None, several) => {
            let names: Vec<_> = several.iter().map(|run| run.display().to_string()).collect();
            Err(StoreError::damaged(
                name,
                format!("several runs are called so: {}; give more of the name", names.join(", ")),
            ))
        }
    }
}

/// The runs and ablations in this folder, the one that began last at the end.
///
/// # Errors
///
/// If the folder cannot be read; one that is not there holds none.
pub fn runs(root: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(root) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.map_err(|e| StoreError::system("look into it", root, e))?,
    };
    let mut runs: Vec<(SystemTime, PathBuf)> = entries.flatten().filter_map(|entry| began(&entry.path())).collect();
    runs.sort();
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

/// A run's header is written once, when it begins.
fn began(run: &Path) -> Option<(SystemTime, PathBuf)> {
    let hidden = run.file_name()?.to_string_lossy().starts_with('.');
    let written = MARKS.iter().find_map(|mark| fs::metadata(run.join(mark)).ok()?.modified().ok());
    written.filter(|_| !hidden).map(|when| (when, run.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_found_by_its_path_a_part_of_its_name_or_as_the_latest() {
        let root = tempfile::tempdir().unwrap();
        for (age, name) in [(30, "1-silu"), (20, "2-silu"), (10, "3-norm")] {
            fs::create_dir(root.path().join(name)).unwrap();
            let mark = fs::File::create(root.path().join(name).join("run.toml")).unwrap();
            mark.set_modified(SystemTime::now() - std::time::Duration::from_secs(age)).unwrap();
        }
        let found = |name: &str| find(root.path(), Path::new(name)).map_err(|e| e.to_string());
        assert_eq!(found("latest"), Ok(root.path().join("3-norm")));
        assert_eq!(found("norm"), Ok(root.path().join("3-norm")));
        assert_eq!(found("1-"), Ok(root.path().join("1-silu")));
        assert!(found("silu").unwrap_err().contains("several runs are called so"));
        assert_eq!(found("nothing"), Ok(PathBuf::from("nothing")));
        assert_eq!(found("some/where"), Ok(PathBuf::from("some/where")));
        assert!(find(&root.path().join("none"), Path::new("latest")).unwrap_err().to_string().contains("no run here"));
    }
}
