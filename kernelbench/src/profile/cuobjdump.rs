//! `cuobjdump`: what stands in the code for a GPU that a compiler made. Nothing is run.

pub(crate) mod ring;

use super::tool::Tools;
use crate::result::{
    error::fault,
    failure::Fault,
    label::{Kind, Label},
};
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

/// The instruction in a line of a disassembly: `/*0040*/ @P0 LDS R4, [R2] ; /* 0x... */` without its ends.
pub(crate) fn instruction(line: &str) -> Option<&str> {
    let (address, rest) = line.strip_prefix("/*")?.split_once("*/")?;
    let is_address = address.len() >= 4 && address.chars().all(|c| c.is_ascii_hexdigit());
    let text = rest.split("/*").next()?.trim().trim_end_matches(';').trim();
    (is_address && !text.is_empty()).then_some(text)
}

/// What an instruction is called: `LDS` of `@P0 LDS R4, [R2]`.
pub(crate) fn mnemonic(instruction: &str) -> Option<&str> {
    let name = instruction.split_whitespace().find(|word| !word.starts_with('@'))?;
    name.starts_with(|c: char| c.is_ascii_uppercase()).then_some(name)
}

/// Whether a source may make bulk copies into shared memory, by its words: reading machine code takes a moment.
pub(crate) fn may_copy_in_bulk(source: &str) -> bool {
    ["bulk", "memcpy_async", "tensormap", "_tma", "tma_"].iter().any(|word| source.to_lowercase().contains(word))
}

/// What its machine code shows of an object that is not so in every call, for labels; nothing where it cannot be read.
pub(crate) fn races(tools: &Tools, object: &Path) -> Vec<Label> {
    let Ok(Ok(sass)) = printed(tools, object, "-sass") else { return vec![] };
    let label = |found: ring::GivenBack| {
        let (kernel, loads): (String, usize) = (found.kernel.chars().take(80).collect(), found.loads.len());
        Label::new(
            Kind::PossibleRace,
            format!(
                "possible race in `{kernel}`: {loads} loads from shared memory are under way when `{}` tells others that \
                 they are done (`{}`), and no proxy fence stands between: if a bulk copy fills that place next, it may come \
                 first in some calls",
                found.at, found.loads[0]
            ),
        )
    };
    ring::given_back_early(&sass).into_iter().map(label).collect()
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
