//! Which text has this hash?

use super::StoreError;
use kernelbench::Hash;
use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// The largest text that is kept or read, in bytes.
const LARGEST: u64 = 64 << 20;

/// Texts by content: `blobs/<first two digits>/<hash>`.
#[derive(Clone, Debug)]
pub struct Blobs {
    root: PathBuf,
}

impl Blobs {
    /// The texts under this folder.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Keeps a text under its hash, on the disk when this returns.
    ///
    /// # Errors
    ///
    /// If it cannot be written or is larger than 64 MiB.
    pub fn keep(&self, text: &str) -> Result<Hash, StoreError> {
        let hash = self.put(text)?;
        self.sync(std::slice::from_ref(&hash))?;
        Ok(hash)
    }

    /// Hands a text to the system under its hash: written beside, then renamed, so that whoever reads meanwhile never meets
    /// half a text. A cut of power may still lose it, until [`Blobs::sync`] has returned.
    pub(super) fn put(&self, text: &str) -> Result<Hash, StoreError> {
        let hash = Hash::of(text.as_bytes());
        let path = self.path(&hash)?;
        if text.len() as u64 > LARGEST {
            return Err(StoreError::damaged(&path, "a text of more than 64 MiB is not kept"));
        }
        // What a cut of power left empty, or another damaged, is written anew.
        if self.fetch(&hash).is_err() {
            self.write(&path, text)?;
        }
        Ok(hash)
    }

    /// Waits until these texts and their names are on the disk.
    pub(super) fn sync(&self, hashes: &[Hash]) -> Result<(), StoreError> {
        let mut folders = BTreeSet::from([self.root.clone()]);
        for hash in hashes {
            let path = self.path(hash)?;
            sync(&path)?;
            folders.extend(path.parent().map(Path::to_owned));
        }
        folders.iter().try_for_each(|folder| sync(folder))
    }

    /// Reads a text and compares it with its name.
    ///
    /// # Errors
    ///
    /// If it is missing, is no plain file, is too large, is not UTF-8, or is not what its name says.
    pub fn fetch(&self, hash: &Hash) -> Result<String, StoreError> {
        let path = self.path(hash)?;
        let text = read_plain_file(&path, LARGEST)?;
        if Hash::of(text.as_bytes()) != *hash {
            let why = "its content is not what its name says: it was changed after it was written; \
                       restore it from a copy, or make the run again";
            return Err(StoreError::damaged(&path, why));
        }
        Ok(text)
    }

    /// Where a text of this hash lies. A hash out of a record may be any string: only 64 hexadecimal digits are taken.
    fn path(&self, hash: &Hash) -> Result<PathBuf, StoreError> {
        let name = hash.as_str();
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if name.len() != 64 || !name.bytes().all(digit) {
            let shown: String = name.chars().take(80).collect();
            let why = format!("{shown:?} is not a hash (64 hexadecimal digits): the record was changed by hand");
            return Err(StoreError::damaged(&self.root, why));
        }
        Ok(self.root.join(&name[..2]).join(name))
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), StoreError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder).map_err(|e| StoreError::system("make the folder", folder, e))?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let beside = self.root.join(format!(".{}-{number}.part", std::process::id()));
        let written = fs::File::create_new(&beside).and_then(|mut file| file.write_all(text.as_bytes()));
        written.and_then(|()| fs::rename(&beside, path)).map_err(|e| {
            let _ = fs::remove_file(&beside);
            StoreError::system("write a text", path, e)
        })
    }

    /// Removes what a killed process left half written. Only for whoever holds the run's lock.
    pub(super) fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with('.') && name.to_string_lossy().ends_with(".part") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Waits until a file, or the names in a folder, are on the disk.
pub(super) fn sync(path: &Path) -> Result<(), StoreError> {
    let synced = fs::File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|e| StoreError::system("write it to the disk", path, e))
}

/// Reads a file that may come from anywhere: no link, no pipe, no device, not above `cap` bytes, UTF-8.
pub(super) fn read_plain_file(path: &Path, cap: u64) -> Result<String, StoreError> {
    require_plain_file(path)?;
    let file = fs::File::open(path).map_err(|e| StoreError::system("open it", path, e))?;
    let mut bytes = vec![];
    file.take(cap + 1).read_to_end(&mut bytes).map_err(|e| StoreError::system("read it", path, e))?;
    if bytes.len() as u64 > cap {
        return Err(StoreError::damaged(path, format!("it is larger than {} MiB: no run writes that", cap >> 20)));
    }
    String::from_utf8(bytes)
        .map_err(|_| StoreError::damaged(path, "it is not UTF-8 text: this program did not write it"))
}

/// An error unless this is a plain file, and not a link to one.
pub(super) fn require_plain_file(path: &Path) -> Result<(), StoreError> {
    let about = fs::symlink_metadata(path).map_err(|e| StoreError::system("find it", path, e))?;
    if about.is_file() {
        return Ok(());
    }
    Err(StoreError::damaged(path, "it is not a plain file: a run folder holds only files and folders"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_was_changed_after_it_was_kept_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::at(folder.path().to_owned());
        let hash = blobs.keep("int f;").unwrap();
        assert_eq!(blobs.fetch(&hash).unwrap(), "int f;");
        fs::write(blobs.path(&hash).unwrap(), "int g;").unwrap();
        let error = blobs.fetch(&hash).unwrap_err().to_string();
        assert!(error.contains(hash.as_str()) && error.contains("not what its name says"), "{error}");
    }

    #[test]
    fn a_hash_that_is_a_path_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::at(folder.path().join("blobs"));
        fs::write(folder.path().join("secret"), "x").unwrap();
        let hash: Hash = serde_json::from_str("\"../secret\"").unwrap();
        assert!(blobs.fetch(&hash).unwrap_err().to_string().contains("is not a hash"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_place_of_a_text_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::at(folder.path().join("blobs"));
        let hash = Hash::of(b"x");
        let path = blobs.path(&hash).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(folder.path().join("outside"), "x").unwrap();
        std::os::unix::fs::symlink(folder.path().join("outside"), &path).unwrap();
        assert!(blobs.fetch(&hash).unwrap_err().to_string().contains("not a plain file"));
    }
}
