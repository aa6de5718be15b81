//! What is left of a run when the power is cut? A disk image whose file system is shut down without writing anything more.

use super::{answered, answering, asked, endpoint::Endpoint, program, resume, round_of, start, story};
use std::{
    collections::BTreeSet,
    fs::File,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Shuts the file system of a folder down: what is not on the disk yet is lost (`EXT4_IOC_SHUTDOWN` without a flush).
const CUT: &str = "import fcntl, os, struct, sys; \
                   fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
const MOMENTS: u32 = 20;

/// An ext4 image that is mounted while this lives.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        File::create(disk.0.path().join("image")).unwrap().set_len(64 << 20).unwrap();
        std::fs::create_dir(disk.folder()).unwrap();
        disk.command("mkfs.ext4", &["-q", "image"]);
        disk.mount();
        disk
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("mounted")
    }

    fn mount(&self) {
        self.command("mount", &["-o", "loop", "image", "mounted"]);
    }

    fn cut(&self) {
        self.command("python3", &["-c", CUT, "mounted"]);
    }

    fn unmount(&self) {
        self.command("umount", &["mounted"]);
    }

    fn command(&self, program: &str, arguments: &[&str]) {
        let ran = Command::new(program).args(arguments).current_dir(self.0.path()).status().unwrap();
        assert!(ran.success(), "{program} {arguments:?}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder()).status();
    }
}

/// What was asked by now, but for the last: a question is asked after the answers to those before it were noted.
fn acted_on(endpoint: &Endpoint) -> BTreeSet<(String, u64)> {
    let requests = endpoint.requests();
    let before = requests.split_last().map_or(&[][..], |(_, before)| before);
    let question = |r: &super::Request| (r.body["model"].as_str().unwrap().to_owned(), round_of(r) as u64);
    before.iter().map(question).collect()
}

/// What came of one cut.
#[derive(Default)]
struct Came {
    /// Whether there was something left to do.
    cut_short: bool,
    /// Whether nothing had been asked yet, and the run was begun anew.
    anew: bool,
    /// Answers that had been acted on or were found afterwards, and how many of these were asked again.
    paid: usize,
    again: usize,
}

fn cut_and_resume(after: Duration, expected: &[serde_json::Value]) -> Came {
    let (disk, endpoint) = (Disk::new(), answering());
    let run = disk.folder().join("run");
    let mut child = start(&endpoint, &disk.folder()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(after);
    let mut paid = acted_on(&endpoint);
    disk.cut();
    child.kill().unwrap();
    child.wait().unwrap();
    disk.unmount();
    disk.mount();
    let before = asked(&endpoint);
    if !run.exists() {
        assert!(paid.is_empty(), "cut after {after:?}: the run is gone, and {paid:?} had been answered");
        return Came { anew: true, ..Came::default() };
    }
    if program::only_events(&run).exists() {
        paid.extend(answered(&run));
    }
    let told = resume(&endpoint, &run);
    assert_eq!(told.code, Some(0), "cut after {after:?}: {told:?}");
    assert_eq!(story(&run), expected, "cut after {after:?}");
    let now = asked(&endpoint);
    let again = paid.iter().filter(|question| before.get(question) != now.get(question)).count();
    assert_eq!(program::run(&["verify", &run.display().to_string()]).code, Some(0), "cut after {after:?}");
    Came { cut_short: paid.len() < 18, anew: false, paid: paid.len(), again }
}

#[test]
#[ignore = "needs root, loop devices, ext4 and python3"]
fn a_run_whose_power_is_cut_resumes_to_the_same_end_and_asks_nothing_again_that_was_synced() {
    let (whole, endpoint) = (Disk::new(), answering());
    let began = Instant::now();
    program::Told::of(start(&endpoint, &whole.folder()).output().unwrap()).ended(0);
    let (takes, expected) = (began.elapsed(), story(&whole.folder().join("run")));
    let came: Vec<Came> = (0..MOMENTS)
        .map(|moment| {
            let jitter = began.elapsed().subsec_nanos() % (takes.as_nanos() as u32 / MOMENTS);
            cut_and_resume(takes * moment / MOMENTS + Duration::from_nanos(jitter.into()), &expected)
        })
        .collect();
    let count = |is: fn(&Came) -> bool| came.iter().filter(|one| is(one)).count();
    let sum = |of: fn(&Came) -> usize| came.iter().map(of).sum::<usize>();
    let told = format!(
        "{{\"cuts\": {MOMENTS}, \"begun_anew\": {}, \"before_the_end\": {}, \"answers_synced\": {}, \"asked_again\": {}}}",
        count(|one| one.anew),
        count(|one| one.cut_short),
        sum(|one| one.paid),
        sum(|one| one.again)
    );
    eprintln!("{told}");
    assert_eq!(sum(|one| one.again), 0, "{told}");
    assert!(count(|one| one.cut_short) >= 10, "the test says nothing: {told}");
}
