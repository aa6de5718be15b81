//! CUTLASS's headers, with CuTe among them, where a user has them: candidates in CUDA may include them then.

use crate::result::failure::Fault;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The variable that names its folder.
const VARIABLE: &str = "CUTLASS_PATH";
/// What says that CuTe is there.
const CUTE: &str = "cute/tensor.hpp";
/// Where its version stands.
const VERSION: &str = "cutlass/version.h";

/// Its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cutlass {
    /// The folder that they are included from.
    pub(crate) include: PathBuf,
    /// Such as `4.3.0`.
    pub(crate) version: String,
}

impl Cutlass {
    /// Those in the folder that `CUTLASS_PATH` names; `None` where it names none.
    pub(super) fn named() -> Result<Option<Self>, Fault> {
        let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        named.map(|folder| Self::at(&folder)).transpose().map_err(Fault::Absent)
    }

    /// What tells builds with them from builds with others.
    pub(super) fn told(&self) -> String {
        format!("{} of {}", self.version, self.include.display())
    }

    /// Those of a checkout of CUTLASS, or of a package that has its `include`; in words why there are none.
    fn at(folder: &Path) -> Result<Self, String> {
        let include = folder.join("include");
        let expected = |what: &str| {
            format!(
                "{VARIABLE} is {}: {what}; expected the absolute path of a folder that has include/{CUTE}",
                folder.display()
            )
        };
        if !folder.is_absolute() {
            return Err(expected("that depends on where one stands"));
        }
        if !include.join(CUTE).is_file() {
            return Err(expected("no headers are there"));
        }
        let text =
            fs::read_to_string(include.join(VERSION)).map_err(|e| expected(&format!("include/{VERSION}: {e}")))?;
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix("#define ")?.strip_prefix(name));
            line.map(str::trim).filter(|number| number.bytes().all(|c| c.is_ascii_digit())).unwrap_or("?").to_owned()
        };
        let version = ["CUTLASS_MAJOR ", "CUTLASS_MINOR ", "CUTLASS_PATCH "].map(number).join(".");
        Ok(Self { include, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_with_their_version_and_a_folder_without_them_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let why = Cutlass::at(folder.path()).expect_err("nothing is there");
        assert!(why.starts_with("CUTLASS_PATH is /") && why.contains("include/cute/tensor.hpp"), "{why}");
        for (path, text) in [
            (CUTE, ""),
            (VERSION, "#pragma once\n#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 3\n#define CUTLASS_PATCH 0\n"),
        ] {
            let file = folder.path().join("include").join(path);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(file, text).expect("a file");
        }
        let found = Cutlass::at(folder.path()).expect("headers");
        assert_eq!((found.version.as_str(), &found.include), ("4.3.0", &folder.path().join("include")));
        assert!(Cutlass::at(Path::new("cutlass")).expect_err("a relative path").contains("where one stands"));
        assert!(found.told().starts_with("4.3.0 of /"), "{}", found.told());
    }
}
