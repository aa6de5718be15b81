//! Who says so? A worker signs what it found, and the orchestrator writes down whose signature it was.

use kernelbench::Hash;
use nkeys::KeyPair;
use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};
use warpsmith::exit::Trouble;

/// A worker's key pair.
pub struct Identity(KeyPair);

impl Identity {
    /// The one in this file, or in the user's folder of settings; made where there is none.
    ///
    /// # Errors
    ///
    /// Where the file holds something else, or cannot be made.
    pub fn load(named: Option<&Path>) -> Result<Self, Trouble> {
        let path = named.map_or_else(usual, Path::to_owned);
        let wrong = |why: &dyn std::fmt::Display| {
            Trouble::usage(format!("{}: {why}; name another file with --identity FILE", path.display()))
        };
        let mut found = fs::read_to_string(&path);
        if found.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            make(&path).map_err(|e| wrong(&format!("cannot keep the worker's key: {e}")))?;
            found = fs::read_to_string(&path);
        }
        let seed = found.map_err(|e| wrong(&e))?;
        let pair = KeyPair::from_seed(seed.trim());
        pair.map(Self).map_err(|_| wrong(&"expected the seed of a worker's key (SU...)"))
    }

    /// What others know it by.
    #[must_use]
    pub fn public(&self) -> String {
        self.0.public_key()
    }

    /// Its signature under what came of a job, in hexadecimal.
    #[must_use]
    pub fn sign(&self, id: &Hash, payload: &[u8]) -> String {
        // A pair that has a seed can sign.
        let signature = self.0.sign(&signed(id, payload)).unwrap_or_default();
        signature.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }
}

/// Whether the holder of this public key signed what came of a job.
#[must_use]
pub fn is_signed_by(key: &str, id: &Hash, payload: &[u8], signature: &str) -> bool {
    let byte = |at: usize| signature.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Vec<u8>> = (0..signature.len()).step_by(2).map(byte).collect();
    let Ok(pair) = KeyPair::from_public_key(key) else { return false };
    bytes.is_some_and(|bytes| pair.verify(&signed(id, payload), &bytes).is_ok())
}

/// What is signed: the job, and what came of it.
fn signed(id: &Hash, payload: &[u8]) -> Vec<u8> {
    format!("warpsmith\n{id}\n{}", Hash::of(payload)).into_bytes()
}

fn usual() -> PathBuf {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = given("XDG_CONFIG_HOME").or_else(|| given("HOME").map(|home| home.join(".config")));
    base.unwrap_or_else(std::env::temp_dir).join("warpsmith/worker.seed")
}

/// Makes a key where nobody else can read it. Workers that start at once in one home, as jobs of an array do, have one key:
/// the first's, which nobody sees before it is whole.
fn make(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let pair = KeyPair::new_user();
    let seed = pair.seed().map_err(std::io::Error::other)?;
    let own = path.with_extension(pair.public_key());
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own)?;
    let kept = file.write_all(seed.as_bytes()).and_then(|()| fs::hard_link(&own, path));
    fs::remove_file(&own)?;
    match kept {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        kept => kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_kept_from_others_and_signs_for_one_job_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/worker.seed");
        let (first, again) = (Identity::load(Some(&path)).unwrap(), Identity::load(Some(&path)).unwrap());
        assert_eq!(first.public(), again.public());
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o077, 0, "others can read the key");
        let (id, other) = (Hash::of(b"job"), Hash::of(b"other"));
        let signature = first.sign(&id, b"fast");
        assert!(is_signed_by(&again.public(), &id, b"fast", &signature));
        assert!(!is_signed_by(&again.public(), &id, b"faster", &signature));
        assert!(!is_signed_by(&again.public(), &other, b"fast", &signature));
        assert!(!is_signed_by(&Identity(KeyPair::new_user()).public(), &id, b"fast", &signature));
        assert!(!is_signed_by("U", &id, b"fast", "zz"));
    }

    #[test]
    fn workers_that_start_at_once_have_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("home/worker.seed");
        let load = || Identity::load(Some(&path)).map(|own| own.public()).map_err(|e| e.message);
        let keys: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..16).map(|_| scope.spawn(load)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| key.is_ok() && *key == keys[0]), "{keys:?}");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "something else was left there");
    }

    #[test]
    fn what_is_no_seed_is_said_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seed");
        fs::write(&path, "hello").unwrap();
        let told = Identity::load(Some(&path)).err().unwrap().message;
        assert!(told.contains("seed: expected the seed") && told.contains("--identity"), "{told}");
    }
}
