//! A process that says that it compiles: meanwhile others may have the device.

use super::{LatencyHider, Peer, SPIN, spin};
use crate::{
    result::error::Attempt,
    sandbox::{
        kernel_child::{ASIDE, BACK, Numbered},
        socket,
    },
};
use rand::Rng;
use serde::{Serialize, de::DeserializeOwned};
use std::time::{Duration, Instant};

/// Who lets others have the device while a process compiles and needs none.
pub(crate) trait Aside {
    /// It has compiled for so long; said again and again until it needs the device.
    fn compiles(&mut self, so_far: Duration);

    /// It needs the device, or has answered; returns once it has it.
    fn needs_device(&mut self);
}

/// What a process said last of whether it compiles.
struct Compiles<'a, A: Aside> {
    aside: &'a mut A,
    since: Option<Instant>,
}

impl<A: Aside> LatencyHider for Compiles<'_, A> {
    fn look(&mut self) -> Attempt<()> {
        if let Some(since) = self.since {
            self.aside.compiles(since.elapsed());
        }
        Ok(())
    }
}

impl<A: Aside> Compiles<'_, A> {
    fn end(&mut self) {
        self.since = None;
        self.aside.needs_device();
    }
}

impl Peer {
    /// Asks something of what may say meanwhile, as often as it likes, that it compiles and needs no device, and that it needs
    /// it again. What it waits for the device then, standing still, counts neither for its deadline nor for its time.
    pub(crate) fn ask_aside<A: DeserializeOwned>(
        &mut self,
        body: &impl Serialize,
        deadline: Duration,
        aside: &mut impl Aside,
    ) -> Attempt<(A, Duration)> {
        let nonce = rand::rng().random::<u64>() >> 12;
        self.send(&Numbered { nonce, body }, &[])?;
        let (mut compiles, mut spent) = (Compiles { aside, since: None }, Duration::ZERO);
        loop {
            // Until it stands still, whatever it has said by then.
            let resumed = Instant::now();
            let heard = self.answered_after(spent, deadline, spin(SPIN), &mut compiles);
            spent += resumed.elapsed();
            let says = heard.as_ref().map_or(&[][..], |(length, _)| &self.packet[..*length]);
            let (begins, ends) = (says == [ASIDE], says == [BACK]);
            if begins {
                compiles.since = Some(Instant::now());
            } else {
                compiles.end();
            }
            let (length, _) = heard?;
            if ends {
                let word = socket::send(&self.control, &nonce.to_le_bytes(), &[]);
                word.map_err(|error| self.unreachable(&error))?;
            } else if !begins {
                return Ok((self.said(length, nonce)?, spent));
            }
        }
    }
}
