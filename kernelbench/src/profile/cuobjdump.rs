//! `cuobjdump`: what stands in the code for a GPU that a compiler made. Nothing is run.

use super::tool::Tools;
use crate::result::{error::fault, failure::Fault};
use std::{
    fs::{self, File},
    io::Read,
    path::Path,
    time::Duration,
};

/// The largest object that is read, in bytes.
pub(crate) const LARGEST: u64 = 64 << 20;
/// What reading one may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// What `cuobjdump` prints of a copy of this file.
pub(crate) fn printed(tools: &Tools, object: &Path, option: &str) -> Result<Result<String, String>, Fault> {
    let (folder, user) = tools.folder()?;
    let copy = folder.path().join("object");
    let mut bytes = vec![];
    let read = File::open(object).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
    if let Err(e) = read {
        return Ok(Err(format!("cannot read what it built: {e}")));
    }
    fs::write(&copy, bytes).map_err(fault("cannot copy what a candidate built"))?;
    let line = vec!["cuobjdump".to_owned(), option.to_owned(), copy.display().to_string()];
    let tool = tools.start(line, folder.path(), user, None, true)?;
    let said = tool.output(DEADLINE);
    Ok(said.and_then(|text| if text.contains("Function") { Ok(text) } else { Err(complaint(&text)) }))
}

fn complaint(text: &str) -> String {
    let signs = ["fatal", "cannot start", "denied", "not found"];
    let told = text.lines().find(|line| signs.iter().any(|sign| line.contains(sign)));
    told.unwrap_or("there is no code for a GPU in it").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_in_the_place_of_code_is_told() {
        let told = "cuobjdump fatal   : Could not find executable file 'nvdisasm'; you can try adding path\n";
        assert!(complaint(told).contains("nvdisasm"));
        assert_eq!(complaint(""), "there is no code for a GPU in it");
    }
}
