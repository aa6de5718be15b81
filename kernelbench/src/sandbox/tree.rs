//! The process tree of a candidate: who else runs in its name.

use super::process::signal;
use nix::sys::signal::Signal;
use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    sync::{
        LazyLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

/// All processes of a candidate beside the one that was started: those of its user, or where it shares ours, of its session.
#[derive(Debug, Default)]
pub(crate) struct ProcessTree {
    /// The process that was started.
    pub(crate) leader: i32,
    /// The user that is this candidate's alone.
    pub(crate) user: Option<u32>,
    /// The last process that this system had started when nobody else was there; 0 for never.
    alone_at: AtomicU64,
}

impl ProcessTree {
    /// Those of a process, and of the user that is its own.
    pub(crate) fn of(leader: i32, user: Option<u32>) -> Self {
        Self { leader, user, alone_at: AtomicU64::new(0) }
    }

    /// Whether there are no others. To look at all processes takes milliseconds: where none was started since nobody else
    /// was there, nobody is there now.
    pub(crate) fn is_alone(&self) -> bool {
        let newest = newest();
        if newest.is_some_and(|newest| newest == self.alone_at.load(Ordering::Relaxed)) {
            return true;
        }
        let alone = self.others().is_empty();
        let of_this_system = newest.filter(|newest| *newest >= u64::from(self.leader.unsigned_abs()));
        self.alone_at.store(of_this_system.filter(|_| alone).unwrap_or(0), Ordering::Relaxed);
        alone
    }

    /// The others that are alive.
    pub(crate) fn others(&self) -> Vec<i32> {
        let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
        let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        ids.filter(|id| *id != self.leader && self.owns(*id)).collect()
    }

    /// Ends all others, and those that they start meanwhile.
    pub(crate) fn end(&self) {
        for _ in 0..200 {
            let others = self.others();
            if others.is_empty() {
                return;
            }
            for id in others {
                signal(id, Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn owns(&self, id: i32) -> bool {
        let of_session = || {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            let (_, rest) = stat.rsplit_once(") ")?;
            let mut fields = rest.split(' ');
            let alive = !matches!(fields.next()?, "Z" | "X");
            Some(alive && fields.nth(2)?.parse::<i32>().ok()? == self.leader)
        };
        let of_user = |user: u32| {
            let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            let alive = !field("State:")?.starts_with(['Z', 'X']);
            Some(alive && field("Uid:")?.split_whitespace().any(|uid| uid.parse() == Ok(user)))
        };
        self.user.map_or_else(of_session, of_user).unwrap_or(false)
    }
}

/// The process or thread that this system started last, by its number; `None` where it does not say.
fn newest() -> Option<u64> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.trim().rsplit(' ').next()?.parse().ok().filter(|id| *id > 0)
}

/// Memory of the host that a process holds and no file backs, in MiB; `None` where this system does not say.
pub(crate) fn held_mib(id: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some((kib("RssAnon:")? + kib("RssShmem:")?) >> 10)
}

/// Whether a process is there and does not stand still.
#[cfg(test)]
pub(crate) fn runs(id: i32) -> bool {
    state(id).is_some_and(|state| !['T', 't', 'Z', 'X'].contains(&state))
}

/// Whether any process of these groups is there and does not stand still, each named by its leader.
pub(crate) fn group_runs(leaders: &[i32]) -> bool {
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let runs_in_one = |id: i32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let runs = !matches!(fields.next()?, "T" | "t" | "Z" | "X");
        Some(runs && leaders.contains(&fields.nth(1)?.parse().ok()?))
    };
    ids.into_iter().any(|id| runs_in_one(id).unwrap_or(false))
}

/// Whether a process is there and has not ended, whether or not anybody was told.
pub(crate) fn lives(id: i32) -> bool {
    state(id).is_some_and(|state| !['Z', 'X'].contains(&state))
}

fn state(id: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// So many users are one program's while it runs.
const OF_A_PROGRAM: u32 = 1000;

/// A user that is nobody else's.
pub(crate) fn own_user() -> u32 {
    static OURS: LazyLock<(u32, Option<UnixDatagram>)> = LazyLock::new(|| reserve(std::process::id()));
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let free = |user: &u32| ProcessTree::of(0, Some(*user)).others().is_empty();
    // Whoever steps over one that is taken goes to one that nobody else has gone to.
    let mut users = (0..OF_A_PROGRAM).map(|_| OURS.0 + NEXT.fetch_add(1, Ordering::Relaxed) % OF_A_PROGRAM);
    users.find(free).unwrap_or(65534)
}

/// The first of a program's users, and what holds them for it: a name of this system that one program at a time has. Who
/// only looked which users have no process would share one with a program that had looked at the same moment.
fn reserve(wanted: u32) -> (u32, Option<UnixDatagram>) {
    let first = |block: u32| 100_000 + block % 1000 * OF_A_PROGRAM;
    let held = (0..1000).find_map(|step| {
        let first = first(wanted.wrapping_add(step));
        let name = SocketAddr::from_abstract_name(format!("warpsmith-users-{first}")).ok()?;
        Some((first, Some(UnixDatagram::bind_addr(&name).ok()?)))
    });
    held.unwrap_or_else(|| (first(wanted), None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::process::CommandExt, process::Command, time::Instant};

    #[test]
    fn programs_that_want_the_same_users_get_others() {
        let wanted = std::process::id().wrapping_add(500);
        let [one, two] = [wanted, wanted + 1000].map(reserve);
        assert!(one.1.is_some() && two.1.is_some(), "{one:?} {two:?}");
        assert!(one.0.abs_diff(two.0) >= OF_A_PROGRAM, "{one:?} {two:?}");
        let first = one.0;
        drop(one);
        // A child of another test may hold it until it is another program.
        let freed = (0..2000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            reserve(wanted).0 == first
        });
        assert!(freed, "what nobody holds any more");
    }

    #[test]
    fn a_group_runs_until_all_of_it_stands_still() {
        let line = "(while :; do :; done) & while :; do :; done";
        let mut leader = Command::new("sh").args(["-c", line]).process_group(0).spawn().expect("a shell");
        let id = leader.id().cast_signed();
        let stands = |within: Duration| {
            let start = Instant::now();
            while group_runs(&[id]) && start.elapsed() < within {
                std::thread::sleep(Duration::from_millis(1));
            }
            !group_runs(&[id])
        };
        std::thread::sleep(Duration::from_millis(100));
        signal(id, Signal::SIGSTOP);
        let with_its_child = stands(Duration::from_millis(300));
        signal(-id, Signal::SIGSTOP);
        let in_the_end = stands(Duration::from_secs(20));
        signal(-id, Signal::SIGKILL);
        leader.wait().expect("its end");
        assert!(!with_its_child, "its child runs");
        assert!(in_the_end && !group_runs(&[]));
    }
}
