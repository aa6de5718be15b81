//! Libraries of an object in CUDA: those that a baseline is linked with, and those that a candidate may not use.

use crate::task::library::Forbidden;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// What an object is linked with beside CUDA's runtime, and what it may not use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Libraries<'a> {
    /// As a linker names them: `cublas`.
    pub(crate) link: &'a [String],
    /// What the compiled text may not show a use of.
    pub(crate) forbidden: &'a [Forbidden],
}

impl Libraries<'_> {
    /// What tells a build with them from others of the same source; nothing where there are none.
    pub(super) fn told(&self) -> Option<String> {
        let any = !self.link.is_empty() || !self.forbidden.is_empty();
        any.then(|| serde_json::to_string(&(self.link, self.forbidden)).unwrap_or_default())
    }

    /// The arguments of a linker that looks into these folders first. A file that is found there is found again when the object
    /// is loaded, and so is what that needs in its turn, which only the older of the two tags is asked for.
    pub(super) fn arguments(&self, folders: &[PathBuf]) -> Vec<OsString> {
        let mut arguments = vec![];
        for name in self.link {
            let Some((folder, file)) = folders.iter().find_map(|folder| Some((folder, file_of(folder, name)?))) else {
                arguments.push(format!("-l{name}").into());
                continue;
            };
            arguments.push(file.into());
            for option in ["--disable-new-dtags".as_ref(), "-rpath".as_ref(), folder.as_os_str()] {
                arguments.extend(["-Xlinker".into(), option.to_owned()]);
            }
        }
        arguments
    }
}

/// Where the libraries of a toolkit lie, and cuDNN's, which is no part of it: in what `CUDNN_PATH` names, or where pip puts it
/// beside a toolkit of its own; and what that loads in its turn, of pip's toolkit.
pub(super) fn folders(home: Option<&Path>) -> Vec<PathBuf> {
    let named = std::env::var_os("CUDNN_PATH").filter(|value| !value.is_empty()).map(PathBuf::from);
    folders_of(home, named.filter(|path| path.is_absolute()))
}

fn folders_of(home: Option<&Path>, cudnn: Option<PathBuf>) -> Vec<PathBuf> {
    let of_toolkit = ["lib64", "lib"].into_iter().filter_map(|name| Some(home?.join(name)));
    let cudnn = cudnn.or_else(|| Some(home?.parent()?.join("cudnn")));
    let beside = cudnn.as_deref().and_then(Path::parent).map(|beside| beside.join("cu13/lib"));
    let of_cudnn = cudnn.iter().flat_map(|path| ["lib64", "lib"].map(|name| path.join(name)));
    let mut all: Vec<PathBuf> = vec![];
    for folder in of_toolkit.chain(of_cudnn).chain(beside).filter(|folder| folder.is_dir()) {
        if !all.contains(&folder) {
            all.push(folder);
        }
    }
    all
}

/// Whether a library lies where objects in CUDA are linked from on this machine, by its name for a linker: `cudnn`. Where a linker
/// looks by itself is not looked at.
#[must_use]
pub fn is_here(name: &str) -> bool {
    let program = super::find().and_then(|nvcc| nvcc.canonicalize().ok());
    let home = program.as_deref().and_then(Path::parent).and_then(Path::parent);
    folders(home).iter().any(|folder| file_of(folder, name).is_some())
}

/// The file of a library in a folder: `libcublas.so`, or where what is for linking was left out, `libcublas.so.13`.
fn file_of(folder: &Path, name: &str) -> Option<PathBuf> {
    let plain = folder.join(format!("lib{name}.so"));
    if plain.is_file() {
        return Some(plain);
    }
    let start = format!("lib{name}.so.");
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&start));
    entries.filter(is_it).filter(|path| path.is_file()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_linked_from_the_toolkit_where_that_has_it_and_from_the_system_where_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().to_owned();
        fs::write(place.join("libcublas.so.13"), "").expect("a file");
        fs::write(place.join("libcublasLt.so.13"), "").expect("a file");
        let link = ["cublas".to_owned(), "cudnn".to_owned()];
        let libraries = Libraries { link: &link, forbidden: &[] };
        let spelt = |libraries: &Libraries<'_>| {
            let words = libraries.arguments(std::slice::from_ref(&place)).into_iter();
            words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let at = place.display();
        let tags = "-Xlinker --disable-new-dtags -Xlinker -rpath -Xlinker";
        assert_eq!(spelt(&libraries), format!("{at}/libcublas.so.13 {tags} {at} -lcudnn"));
        fs::write(place.join("libcublas.so"), "").expect("a file");
        assert_eq!(spelt(&libraries), format!("{at}/libcublas.so {tags} {at} -lcudnn"));
        assert_eq!((Libraries::default().told(), libraries.told().is_some()), (None, true));
    }

    #[test]
    fn cudnn_is_looked_for_where_it_is_named_and_beside_a_toolkit_of_pip_s() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |path: &str| folder.path().join(path);
        for path in ["cuda/lib64", "pip/nvidia/cu13/lib", "pip/nvidia/cudnn/lib"] {
            fs::create_dir_all(place(path)).expect("a folder");
        }
        let of_pip = ["pip/nvidia/cu13/lib", "pip/nvidia/cudnn/lib"].map(place);
        assert_eq!(folders_of(Some(&place("pip/nvidia/cu13")), None), of_pip);
        assert_eq!(folders_of(Some(&place("cuda")), None), [place("cuda/lib64")]);
        let named = folders_of(Some(&place("cuda")), Some(place("pip/nvidia/cudnn")));
        assert_eq!(named, ["cuda/lib64", "pip/nvidia/cudnn/lib", "pip/nvidia/cu13/lib"].map(place));
    }
}
