//! Where is SGLang, in which version, and where does it keep its kernels?

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    process::Command,
};

/// An installed SGLang, or a tree of its sources.
#[derive(Clone, Debug)]
pub struct Tree {
    /// What was asked for.
    pub root: PathBuf,
    /// The Python package.
    pub package: PathBuf,
    /// Its version, as far as it says one.
    pub version: String,
    /// The folder that holds `csrc` and `include` of what is compiled at run time.
    pub jit: Option<PathBuf>,
    /// The same of what is compiled ahead of time; wheels do not have it.
    pub aot: Option<PathBuf>,
    /// The version of what is compiled ahead of time, where its sources are here.
    pub aot_version: Option<String>,
    /// Where it is a checkout: the commit, and whether files differ from it.
    pub checkout: Option<Checkout>,
}

/// A checkout's state.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Checkout {
    /// The commit.
    pub commit: String,
    /// Files that differ from it.
    pub dirty: Vec<String>,
}

impl Tree {
    /// The SGLang in this folder: one of site packages, of the package itself, or of a source tree.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    pub fn open(root: &Path) -> Result<Self, String> {
        // What works on it runs in folders of its own.
        let root = &root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let places = [root.join("python/sglang"), root.join("sglang"), root.to_owned()];
        let is_package = |place: &&PathBuf| place.join("kernels").is_dir() || place.join("jit_kernel").is_dir();
        let Some(package) = places.iter().find(is_package) else {
            return Err(format!(
                "there is no SGLang in {}: expected a folder of site packages that holds sglang, or a source tree that holds python/sglang; versions before kernels were compiled at run time are not supported",
                root.display()
            ));
        };
        let with_sources = |place: &PathBuf| place.join("csrc").is_dir().then(|| place.clone());
        let jit = [package.join("kernels/jit"), package.join("jit_kernel")].iter().find_map(with_sources);
        let aot = [root.join("sgl-kernel"), package.join("kernels/aot")].iter().find_map(with_sources);
        let aot_version = aot.as_ref().and_then(|aot| written(&aot.join("python/sgl_kernel/version.py")));
        Ok(Self {
            root: root.to_owned(),
            version: version(package)
                .or(aot_version.clone().map(|of| format!("unknown, sglang-kernel {of}")))
                .unwrap_or("unknown".into()),
            package: package.clone(),
            jit,
            aot,
            aot_version,
            checkout: checkout(root),
        })
    }

    /// What is to be said of a file of a checkout whose version names a release: that it was changed since, by commits that
    /// its version does not tell, or that nobody knows. Nothing where it is the release's own, or this is no checkout.
    #[must_use]
    pub fn since_release(&self, file: &Path) -> Option<String> {
        self.checkout.as_ref()?;
        let release = self.version.starts_with(|c: char| c.is_ascii_digit()).then(|| format!("v{}", self.version))?;
        let inside = file.strip_prefix(&self.root).ok()?.display();
        let blob = |of: &str| git(&self.root, &["rev-parse", "-q", "--verify", &format!("{of}:{inside}")], &[]);
        let known = git(&self.root, &["rev-parse", "-q", "--verify", &format!("refs/tags/{release}^{{commit}}")], &[]);
        match (known, blob(&format!("refs/tags/{release}")), blob("HEAD")) {
            (Some(_), then, now) if then == now => None,
            (Some(_), ..) => Some(format!(
                "{inside} is another than {release}'s: commits of this tree changed it, and a plug-in with its kernel fits this tree alone, not a release"
            )),
            (None, ..) => Some(format!(
                "this tree calls itself {release} and has no such tag, so whether {inside} is that release's is not known: fetch its tags (git fetch --tags), and take it out again"
            )),
        }
    }

    /// The folder of site packages in which it lies, or what stands in for one.
    #[must_use]
    pub fn site(&self) -> &Path {
        self.package.parent().unwrap_or(&self.root)
    }
}

/// Where a Python's own SGLang lies; nothing of it is imported.
///
/// # Errors
/// A sentence that says what to do.
pub fn installed(python: &str) -> Result<PathBuf, String> {
    package(python, "sglang")
        .ok_or_else(|| {
            format!(
                "{python} has no sglang: install it there, name another Python with --python, or a folder with --sglang"
            )
        })?
        .parent()
        .map(Path::to_owned)
        .ok_or_else(|| format!("{python} has sglang in no folder"))
}

/// The folder of a package that a Python would import.
#[must_use]
pub fn package(python: &str, name: &str) -> Option<PathBuf> {
    let script =
        format!("import importlib.util as u; s = u.find_spec('{name}'); print(list(s.submodule_search_locations)[0])");
    let told = Command::new(python).args(["-c", &script]).output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&told.stdout).trim());
    (told.status.success() && path.is_dir()).then_some(path)
}

/// What a wheel's folder beside the package says, or a file in it.
fn version(package: &Path) -> Option<String> {
    let beside = fs::read_dir(package.parent()?).ok()?;
    let mut names = beside.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let wheel = names.find_map(|name| Some(name.strip_prefix("sglang-")?.strip_suffix(".dist-info")?.to_owned()));
    wheel.or_else(|| written(&package.join("_version.py"))).or_else(|| written(&package.join("version.py")))
}

/// The version that a Python file sets.
fn written(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line =
        text.lines().find(|line| line.contains("version") && line.contains('=') && line.contains(['"', '\'']))?;
    line.split(['"', '\'']).nth(1).map(str::to_owned)
}

fn checkout(root: &Path) -> Option<Checkout> {
    if !root.join(".git").exists() {
        return None;
    }
    let text = |said: Vec<u8>| String::from_utf8_lossy(&said).into_owned();
    let commit = text(git(root, &["rev-parse", "HEAD"], &[])?).trim().to_owned();
    let off = filters_off(&git(root, &["config", "-z", "--name-only", "--list"], &[])?);
    // A submodule has settings of its own.
    let status = git(root, &["status", "--porcelain", "--ignore-submodules=dirty"], &off)?;
    Some(Checkout { commit, dirty: text(status).lines().map(str::to_owned).collect() })
}

/// Settings with which git starts no filter, by the names of all settings that there are.
fn filters_off(settings: &[u8]) -> Vec<(OsString, &'static str)> {
    let name =
        |setting: &&[u8]| setting.starts_with(b"filter.").then(|| setting.iter().rposition(|byte| *byte == b'.'))?;
    let filters = settings.split(|byte| *byte == 0).filter_map(|setting| Some(&setting[..name(&setting)?]));
    let off = |filter: &[u8]| {
        let named = |key: &str| OsString::from_vec([filter, key.as_bytes()].concat());
        [(named(".clean"), ""), (named(".process"), ""), (named(".required"), "false")]
    };
    filters.collect::<BTreeSet<_>>().into_iter().flat_map(off).collect()
}

/// What git says in a tree from elsewhere. It writes nothing there, fetches nothing, and starts no watcher or hook that the
/// tree names.
fn git(root: &Path, arguments: &[&str], settings: &[(OsString, &str)]) -> Option<Vec<u8>> {
    let mut git = Command::new("git");
    git.args(["--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C"]).arg(root);
    git.args(arguments).env("GIT_ALLOW_PROTOCOL", "none");
    // Behind those that the user has in the environment.
    let before = env::var("GIT_CONFIG_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    for (place, (name, value)) in (before..).zip(settings) {
        git.env(format!("GIT_CONFIG_KEY_{place}"), name).env(format!("GIT_CONFIG_VALUE_{place}"), value);
    }
    git.env("GIT_CONFIG_COUNT", (before + settings.len()).to_string());
    let told = git.output().ok()?;
    told.status.success().then_some(told.stdout)
}
