//! The lease of a device: beside others that check, or alone to time and to read counters.
//!
//! Whoever works on a device has a part of its memory from beginning to end, so that those who do so side by side do not
//! run out of it; and the device itself, shared or alone, for as long as it needs it so. Memory goes to tasks that lie in it, and
//! else to who came first.

mod memory;
mod turns;

use crate::{
    hash::Hash,
    sandbox::peer::Aside,
    stage::{self, Hold, Stage},
};
use memory::{Memory, Part};
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, SemaphorePermit};
use turns::{Turn, Turns};

/// The units of a device whose memory nobody knows.
const UNITS: u32 = 840;
/// The bytes of a unit of one whose memory is known.
const UNIT: u64 = 1 << 20;
/// How long who compiles has done so before it is worth to let others have the device, and to wait for it afterwards.
const WORTH_IT: Duration = Duration::from_millis(50);
/// How long it waits in one first call until it compiles what is left with the device: of many kernels each waits anew.
const MOST_WAITED: Duration = Duration::from_mins(1);
/// How often who waits on a thread of its own looks whether it is its turn, beside when it is told.
const LOOK: Duration = Duration::from_millis(20);

/// Who may use a device now.
#[derive(Debug)]
pub(crate) struct Gate {
    memory: Memory,
    units: u32,
    /// Whether units are memory that is known.
    counts_memory: bool,
    turns: Turns,
    /// How many may share it at most.
    beside: u32,
    /// Who may compile and not hold it meanwhile.
    compiling: Semaphore,
}

impl Gate {
    /// That of a device with so many bytes for all, as far as that is known, which so many may share at most.
    pub(crate) fn new(bytes: Option<u64>, beside: usize) -> Self {
        let beside = u32::try_from(beside).unwrap_or(u32::MAX).max(1);
        let units = bytes.and_then(|bytes| u32::try_from(bytes / UNIT).ok()).filter(|units| *units >= beside);
        let counts_memory = units.is_some();
        let units = units.unwrap_or(UNITS.max(beside));
        let (memory, turns, compiling) = (Memory::new(units), Turns::new(beside), Semaphore::const_new(0));
        Self { memory, units, counts_memory, turns, beside, compiling }
    }

    /// The same, where so many may compile beside whoever is alone.
    pub(crate) fn letting_compile(self, most: usize) -> Self {
        Self { compiling: Semaphore::new(most), ..self }
    }

    /// The units of so many bytes. A part of memory that is known is small enough for as many who wait as may share the device:
    /// nobody then waits for memory who could have a turn. Where memory is unknown, turns alone decide.
    fn part_of(&self, bytes: u64) -> u32 {
        if !self.counts_memory {
            return 1;
        }
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).clamp(self.units.div_ceil(2 * self.beside), self.units)
    }

    /// A turn alone, as all are where nobody may share it, or beside others.
    async fn turn(&self, alone: bool) -> Turn<'_> {
        self.turns.turn(alone || self.beside == 1).await
    }

    async fn take(&self, units: u32, alone: bool, task: Option<&Hash>) -> Lease<'_> {
        let waiting = stage::begin(Stage::Lease);
        let free = self.memory.free();
        if free < units {
            let mib = self.counts_memory;
            tracing::info!(wanted = units, free, of = self.units, mib, "waits for a part of the device's memory");
        }
        let memory = Some(self.memory.part(units, task).await);
        let turn = self.turn(alone).await;
        drop(waiting);
        let before = stage::hold(Some(turn.hold()));
        Lease { gate: self, memory, units, task: task.cloned(), turn: Some(turn), before, asked_alone: false }
    }

    /// A device that is shared, for work that takes so many bytes.
    pub(crate) async fn shared(&self, bytes: u64) -> Lease<'_> {
        self.take(self.part_of(bytes), false, None).await
    }

    /// A device that nobody else uses.
    pub(crate) async fn exclusive(&self) -> Lease<'_> {
        let mut lease = self.take(self.part_of(0), true, None).await;
        lease.asked_alone = true;
        lease
    }

    /// A device that is shared, for a step of this task, on a thread that may wait.
    pub(crate) fn share_for(&self, bytes: u64, task: &Hash) -> Lease<'_> {
        wait_for(self.take(self.part_of(bytes), false, Some(task)))
    }
}

/// A device that is held, until this is dropped.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    gate: &'a Gate,
    memory: Option<Part<'a>>,
    units: u32,
    task: Option<Hash>,
    /// None while it steps aside.
    turn: Option<Turn<'a>>,
    before: Option<Hold>,
    /// Whether it is alone because it asked to be; where nobody may share the device every lease is.
    asked_alone: bool,
}

impl Lease<'_> {
    /// Whether nobody else uses the device.
    pub(crate) fn is_alone(&self) -> bool {
        self.turn.as_ref().is_some_and(Turn::is_alone)
    }

    /// Has so many bytes of the device's memory, beside others.
    pub(crate) fn have(&mut self, bytes: u64) {
        self.asked_alone = false;
        self.become_of(self.gate.part_of(bytes), false);
    }

    /// The bytes of the memory that are its own, as far as memory is counted.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.gate.counts_memory.then(|| u64::from(self.units) * UNIT)
    }

    /// Whether all of the device's memory is its own, as far as memory is counted.
    pub(crate) fn has_all(&self) -> bool {
        self.units == self.gate.units || !self.gate.counts_memory && self.is_alone()
    }

    /// Waits until nobody else uses the device. Meanwhile it lets others use it: two who wait for each other would wait for
    /// ever. Its memory it keeps.
    pub(crate) fn be_alone(&mut self) {
        self.asked_alone = true;
        self.become_of(self.units, true);
    }

    /// The same, with all of the device's memory: whoever else worked on it has come to an end.
    pub(crate) fn have_all(&mut self) {
        self.asked_alone = true;
        self.become_of(self.gate.units, true);
    }

    /// Uses the device no more until the next call, and keeps its memory: for who waits for something else now, which another
    /// may hold who waits for the device.
    pub(crate) fn step_aside(&mut self) {
        self.turn = None;
        stage::hold(None);
    }

    /// Does work without the device, and has it afterwards as it had it before; its memory it keeps.
    pub(crate) fn aside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let alone = self.is_alone();
        self.step_aside();
        let done = work();
        self.become_of(self.units, alone);
        done
    }

    /// Between two of many pieces of work that need not be done alone: who waits to be alone goes first, once nobody else shares
    /// the device and a few others came in, if any wait. Its memory it keeps.
    pub(crate) fn give_way(&mut self) {
        if !self.asked_alone && self.gate.turns.is_asked_for() {
            self.aside(|| ());
        }
    }

    /// The same for who has a pair open: where nobody may share the device, a pair holds what the next one needs, who would
    /// have the device and wait for it.
    pub(crate) fn give_way_with_a_pair(&mut self) {
        if self.gate.beside > 1 {
            self.give_way();
        }
    }

    /// Lets others use the device too, where that may be.
    pub(crate) fn let_others_in(&mut self) {
        self.asked_alone = false;
        self.become_of(self.units, false);
    }

    fn become_of(&mut self, units: u32, alone: bool) {
        let alone = alone || self.gate.beside == 1;
        if self.units == units && self.turn.as_ref().map(Turn::is_alone) == Some(alone) {
            return;
        }
        self.turn = None;
        stage::hold(None);
        let waiting = stage::begin(Stage::Lease);
        if self.units != units {
            self.memory = None;
            self.memory = Some(wait_for(self.gate.memory.part_inside(units, self.task.as_ref())));
        }
        let turn = wait_for(self.gate.turn(alone));
        drop(waiting);
        stage::hold(Some(turn.hold()));
        (self.units, self.turn) = (units, Some(turn));
    }
}

/// A lease of who calls a candidate for the first time, which may compile meanwhile.
#[derive(Debug)]
pub(crate) struct Compiling<'a, 'gate> {
    lease: &'a mut Lease<'gate>,
    /// Where it stepped aside: one of so many who may.
    aside: Option<SemaphorePermit<'gate>>,
    /// How long it waited for the device afterwards, together.
    waited: Duration,
}

impl<'a, 'gate> Compiling<'a, 'gate> {
    pub(crate) const fn with(lease: &'a mut Lease<'gate>) -> Self {
        Self { lease, aside: None, waited: Duration::ZERO }
    }
}

impl Aside for Compiling<'_, '_> {
    /// Who is alone stays so: because others held it up before, or because nobody may share the device, and whoever is let in
    /// may wait for what a pair holds.
    fn compiles(&mut self, so_far: Duration) {
        let may = so_far >= WORTH_IT && self.waited < MOST_WAITED;
        if may && self.lease.turn.as_ref().is_some_and(|turn| !turn.is_alone()) {
            self.aside = self.lease.gate.compiling.try_acquire().ok();
            if self.aside.is_some() {
                self.lease.step_aside();
            }
        }
    }

    fn needs_device(&mut self) {
        if self.aside.take().is_some() {
            let start = Instant::now();
            self.lease.let_others_in();
            self.waited += start.elapsed();
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        stage::hold(self.before);
    }
}

/// Waits on this thread until a future has come to its end.
fn wait_for<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park_timeout(LOOK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};
    use std::{
        sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
        time::Duration,
    };
    use tokio::task::JoinSet;

    const GIB: u64 = 1 << 30;

    fn share(gate: &Gate, bytes: u64) -> Lease<'_> {
        wait_for(gate.shared(bytes))
    }

    fn assert_all_is_free(gate: &Gate) {
        let free = (gate.memory.free(), gate.turns.free());
        assert_eq!(free, (gate.units, gate.beside));
    }

    /// Who is in now, and the bytes that they asked for.
    #[derive(Default)]
    struct Inside {
        sharing: AtomicUsize,
        alone: AtomicUsize,
        bytes: AtomicU64,
    }

    impl Inside {
        async fn share(&self, gate: &Gate, bytes: u64, ms: u64) {
            let _lease = gate.shared(bytes).await;
            let sharing = self.sharing.fetch_add(1, SeqCst) + 1;
            let lent = self.bytes.fetch_add(bytes, SeqCst) + bytes;
            assert_eq!(self.alone.load(SeqCst), 0, "a check beside a timing");
            assert!(sharing == 1 || lent <= 80 * GIB, "{lent} bytes are lent");
            assert!(sharing <= 4, "{sharing} share it");
            tokio::time::sleep(Duration::from_millis(ms)).await;
            self.sharing.fetch_sub(1, SeqCst);
            self.bytes.fetch_sub(bytes, SeqCst);
        }

        async fn be_alone(&self, gate: &Gate, ms: u64) {
            let _lease = gate.exclusive().await;
            assert_eq!(self.alone.fetch_add(1, SeqCst) + self.sharing.load(SeqCst), 0, "not alone");
            tokio::time::sleep(Duration::from_millis(ms)).await;
            self.alone.fetch_sub(1, SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_when_nobody_is_beside_a_timing_memory_is_not_lent_twice_and_all_get_their_turn() {
        for seed in 0..200 {
            let mut rng = StdRng::seed_from_u64(seed);
            let (gate, inside) = (Arc::new(Gate::new(Some(80 * GIB), 4)), Arc::new(Inside::default()));
            let mut all = JoinSet::new();
            for _ in 0..40 {
                let (gate, inside) = (Arc::clone(&gate), Arc::clone(&inside));
                let (after, ms) = (rng.random_range(0..300), rng.random_range(0..30));
                let (alone, bytes) = (rng.random_bool(0.4), rng.random_range(0..100) * GIB);
                all.spawn(async move {
                    tokio::time::sleep(Duration::from_millis(after)).await;
                    if alone { inside.be_alone(&gate, ms).await } else { inside.share(&gate, bytes, ms).await }
                });
            }
            let joined = tokio::time::timeout(Duration::from_mins(1), all.join_all()).await;
            assert_eq!(joined.expect("somebody waits for ever").len(), 40);
            assert_all_is_free(&gate);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_wants_to_be_alone_waits_for_those_who_are_in_and_for_eight_who_come_later() {
        let (gate, inside) = (Arc::new(Gate::new(None, 4)), Arc::new(Inside::default()));
        let mut sharers = JoinSet::new();
        for number in 0..100 {
            let (gate, inside) = (Arc::clone(&gate), Arc::clone(&inside));
            sharers.spawn(async move {
                tokio::time::sleep(Duration::from_millis(number * 5)).await;
                inside.share(&gate, 0, 50).await;
            });
        }
        tokio::time::sleep(Duration::from_millis(101)).await;
        let start = tokio::time::Instant::now();
        inside.be_alone(&gate, 1).await;
        // Four are in, and each for 50 ms; a dozen wait, of whom eight go before.
        assert!(start.elapsed() <= Duration::from_millis(151), "{:?}", start.elapsed());
        sharers.join_all().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_to_share_it_has_a_turn_while_others_come_to_be_alone() {
        let (gate, inside) = (Arc::new(Gate::new(None, 4)), Arc::new(Inside::default()));
        let mut alone = JoinSet::new();
        for number in 0..100 {
            let (gate, inside) = (Arc::clone(&gate), Arc::clone(&inside));
            alone.spawn(async move {
                tokio::time::sleep(Duration::from_millis(number * 5)).await;
                inside.be_alone(&gate, 10).await;
            });
        }
        tokio::time::sleep(Duration::from_millis(101)).await;
        let start = tokio::time::Instant::now();
        inside.share(&gate, 0, 1).await;
        // Before it: who is alone, and eight more, ten milliseconds each.
        assert!(start.elapsed() <= Duration::from_millis(91), "{:?}", start.elapsed());
        alone.join_all().await;
    }

    #[test]
    fn who_wants_more_memory_waits_for_it_beside_others_and_two_who_do_have_it_one_after_the_other() {
        let (gate, inside) = (Gate::new(Some(80 * GIB), 4), AtomicUsize::new(0));
        let have_more = |mut lease: Lease<'_>| {
            lease.have(60 * GIB);
            assert!(!lease.is_alone() && !lease.has_all());
            assert_eq!((lease.units, inside.fetch_add(1, SeqCst)), (60 << 10, 0));
            std::thread::sleep(Duration::from_millis(20));
            inside.fetch_sub(1, SeqCst);
        };
        std::thread::scope(|scope| {
            let (one, other) = (share(&gate, 30 * GIB), share(&gate, 30 * GIB));
            let have_more = &have_more;
            scope.spawn(move || have_more(one));
            scope.spawn(move || have_more(other));
        });
        assert_all_is_free(&gate);
    }

    #[test]
    fn two_who_share_it_and_both_want_to_be_alone_do_not_wait_for_each_other() {
        let gate = Gate::new(None, 4);
        let alone = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut lease = share(&gate, 0);
                    assert!(!lease.is_alone());
                    lease.be_alone();
                    assert!(lease.is_alone());
                    assert_eq!(alone.fetch_add(1, SeqCst), 0);
                    std::thread::sleep(Duration::from_millis(2));
                    alone.fetch_sub(1, SeqCst);
                    lease.let_others_in();
                    assert!(!lease.is_alone());
                });
            }
        });
        assert_all_is_free(&gate);
    }

    #[test]
    fn memory_stays_with_who_waits_to_be_alone_and_all_of_it_is_had_only_when_the_others_are_gone() {
        let gate = Gate::new(Some(80 * GIB), 4);
        let (mut one, two) = (share(&gate, 30 * GIB), share(&gate, 30 * GIB));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                one.be_alone();
                one.let_others_in();
                one.have_all();
                gate.memory.free()
            });
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(gate.memory.free(), 20 << 10, "its 30 GiB were lent to others while it waited");
            drop(two);
            assert_eq!(waits.join().unwrap(), 0, "others could come in");
        });
        drop(one);
        assert_all_is_free(&gate);
    }

    #[test]
    fn who_steps_aside_lets_another_be_alone_and_keeps_its_memory() {
        let gate = Gate::new(Some(80 * GIB), 4);
        let mut aside = share(&gate, 30 * GIB);
        aside.step_aside();
        let mut other = share(&gate, 30 * GIB);
        other.be_alone();
        assert_eq!(gate.memory.free(), 20 << 10);
        other.let_others_in();
        aside.let_others_in();
        assert_eq!(gate.turns.free(), 2);
        drop((aside, other));
        assert_all_is_free(&gate);
    }

    #[test]
    fn who_compiles_for_long_enough_lets_another_be_alone_and_shares_the_device_when_it_needs_it() {
        let gate = Gate::new(Some(80 * GIB), 4).letting_compile(1);
        let (mut lease, mut second) = (share(&gate, 30 * GIB), share(&gate, 30 * GIB));
        let mut compiling = Compiling::with(&mut lease);
        compiling.compiles(WORTH_IT / 2);
        assert_eq!(gate.turns.free(), 2, "it was not worth it");
        compiling.compiles(WORTH_IT);
        compiling.compiles(WORTH_IT * 2);
        assert_eq!(gate.turns.free(), 3);
        Compiling::with(&mut second).compiles(WORTH_IT);
        assert_eq!(gate.turns.free(), 3, "more compile beside a timing than may");
        drop(second);
        let other = wait_for(gate.exclusive());
        assert!(other.is_alone() && gate.memory.free() < 50 << 10);
        std::thread::scope(|scope| {
            let needs_it = scope.spawn(|| {
                compiling.needs_device();
                compiling.needs_device();
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!needs_it.is_finished(), "two use the device, one of them alone");
            drop(other);
        });
        assert!(compiling.waited >= Duration::from_millis(10));
        compiling.compiles(WORTH_IT);
        assert_eq!(gate.turns.free(), 4, "it may do so again");
        compiling.needs_device();
        compiling.waited = MOST_WAITED;
        compiling.compiles(WORTH_IT);
        assert_eq!((lease.is_alone(), gate.turns.free()), (false, 3), "it has waited for long enough");
        drop(lease);
        assert_all_is_free(&gate);
    }

    #[test]
    fn who_compiles_keeps_a_device_that_it_has_alone() {
        let gate = Gate::new(None, 1).letting_compile(4);
        let mut lease = share(&gate, 0);
        Compiling::with(&mut lease).compiles(WORTH_IT * 100);
        assert!(lease.is_alone());
        let gate = Gate::new(None, 4).letting_compile(4);
        let mut lease = share(&gate, 0);
        lease.be_alone();
        Compiling::with(&mut lease).compiles(WORTH_IT * 100);
        assert!(lease.is_alone());
    }

    #[test]
    fn who_works_for_long_beside_others_gives_way_to_who_waits_to_be_alone_and_to_nobody_else() {
        let gate = Gate::new(Some(80 * GIB), 4);
        let (mut long, short) = (share(&gate, 30 * GIB), share(&gate, 30 * GIB));
        long.give_way();
        assert_eq!(gate.turns.free(), 2, "nobody asked");
        drop(short);
        std::thread::scope(|scope| {
            let alone = scope.spawn(|| drop(wait_for(gate.exclusive())));
            let start = std::time::Instant::now();
            while !alone.is_finished() && start.elapsed() < Duration::from_secs(10) {
                long.give_way();
                std::thread::sleep(Duration::from_millis(1));
            }
            let was_alone = alone.is_finished();
            long.aside(|| alone.join().unwrap());
            assert!(was_alone, "nobody gave way");
        });
        assert!(!long.is_alone() && long.units == 30 << 10);
        // Whoever wants to be alone does not give way.
        long.be_alone();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(wait_for(gate.exclusive())));
            while !gate.turns.is_asked_for() {
                std::thread::sleep(Duration::from_millis(1));
            }
            long.give_way();
            assert!(long.is_alone() && !waits.is_finished());
            drop(long);
        });
        assert_all_is_free(&gate);
    }

    #[test]
    fn who_works_for_long_gives_way_where_nobody_may_share_the_device_too() {
        let gate = Gate::new(None, 1);
        let mut long = share(&gate, 0);
        std::thread::scope(|scope| {
            let next = scope.spawn(|| drop(share(&gate, 0)));
            while !gate.turns.is_asked_for() {
                std::thread::sleep(Duration::from_millis(1));
            }
            long.give_way();
            let still_waits = gate.turns.is_asked_for();
            drop(long);
            next.join().unwrap();
            assert!(!still_waits, "nobody gave way");
        });
        assert_all_is_free(&gate);
    }

    #[test]
    fn where_nobody_may_share_the_device_every_lease_is_alone() {
        let gate = Gate::new(Some(80 * GIB), 1);
        assert!(share(&gate, 0).is_alone());
        let gate = Gate::new(Some(80 * GIB), 4);
        assert!(!share(&gate, 20 * GIB).is_alone());
        share(&gate, 500 * GIB);
        assert_all_is_free(&gate);
    }
}
