//! The line between a child and its parent: a socket that keeps the bounds of messages, and files that go with them.

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        memfd::{MFdFlags, memfd_create},
        socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair},
    },
};
use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    time::Duration,
};

/// A pair of connected sockets.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

/// Takes a message without waiting: its length in bytes, 0 where the other end is gone; `None` where there is none yet.
pub(crate) fn receive(socket: &impl AsRawFd, message: &mut [u8]) -> io::Result<Option<usize>> {
    match recv(socket.as_raw_fd(), message, MsgFlags::MSG_DONTWAIT) {
        Ok(length) => Ok(Some(length)),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Err(Errno::ECONNRESET) => Ok(Some(0)),
        Err(error) => Err(error.into()),
    }
}

/// Sends a message, and these files with it: four at most.
pub(crate) fn send(socket: &impl AsRawFd, message: &[u8], files: &[&OwnedFd]) -> io::Result<()> {
    let files: Vec<RawFd> = files.iter().map(|file| file.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&files)];
    let control = if files.is_empty() { &[][..] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let sent = sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(message)], control, flags, None)?;
    if sent == message.len() { Ok(()) } else { Err(io::Error::other("the message was cut")) }
}

/// Waits until one of two descriptors can be read or is closed, at most this long.
pub(crate) fn wait_for_either(one: &impl AsFd, two: &impl AsFd, most: Duration) -> io::Result<()> {
    let entry = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let timeout = PollTimeout::try_from(most.as_millis() + 1).unwrap_or(PollTimeout::MAX);
    match poll(&mut [entry(one.as_fd()), entry(two.as_fd())], timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes reading from a descriptor return at once where there is nothing.
pub(crate) fn do_not_block(fd: &impl AsFd) {
    // A pipe or a socket of ours always can.
    let _ = fcntl(fd.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
}

/// A memory file of no length yet, which can be sealed.
pub(crate) fn memory_file() -> io::Result<OwnedFd> {
    Ok(memfd_create(c"warpsmith", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?)
}
