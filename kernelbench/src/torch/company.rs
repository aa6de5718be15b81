//! Who else runs in a candidate's name?

use super::launch;
use std::fs;

/// All processes of a candidate beside the one that was started: those of its user, or where it shares ours, of its session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Company {
    /// The process that was started.
    pub(crate) leader: i32,
    /// The user that is this candidate's alone.
    pub(crate) user: Option<u32>,
}

impl Company {
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
                launch::signal(id, libc::SIGKILL);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
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
