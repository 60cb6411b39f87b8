//! Triage's rules: what the queue does, and what was tried beside it.

use crate::sys::MILLI;

/// When triage looks for what cannot be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// With every packet that arrives: what is given up never returns.
    Arrival,
    /// When the link is free and the packet that would go next begins an ADU: more is
    /// known by then, and what is queued costs no link time.
    Start,
    /// When the link is free and something arrived since: a burst is known as a whole.
    Dequeue,
}

/// What it assumes of the packets of an ADU that have not arrived yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// There are none.
    Arrived,
    /// An oracle tells (to see what knowing would bring).
    Known,
}

/// Which ADU is given up, among the least important of those due no later than the
/// first that would be late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// Most bytes left in the queue.
    MostLeft,
    /// Most bytes in all, what was sent already included.
    Largest,
    /// The one that would be late: the latest due.
    Latest,
    /// The first due.
    First,
}

/// Care for important packets that are expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// None.
    None,
    /// Such a packet is given up with its ADU.
    GiveUp,
    /// Such a packet waits if the important one is expected too soon, judging by the
    /// last two of its priority.
    Wait,
}

/// Care for the most important ADUs where the plan is wrong: they go first if waiting for others
/// would make them late on a link that is slower than believed, by [`Triage::slower`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sure {
    /// None.
    Never,
    /// At all times.
    Always,
    /// For [`DOUBT`] after something that was not given up became stale all the same.
    Doubt,
}

/// How long the plan is not trusted after it failed, ns.
pub(super) const DOUBT: u64 = 10_000 * MILLI;

/// Triage and what can be varied about it. [`Triage::KERNEL`] is the queue as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Triage {
    /// When it decides.
    pub when: When,
    /// Whom it gives up.
    pub victim: Victim,
    /// What it knows of an ADU's size.
    pub size: Size,
    /// An ADU of which a packet was sent is given up for more important ones only.
    pub keep_begun: bool,
    /// An ADU is in time if its last packet *starts* in time.
    pub first_bit: bool,
    /// Room for late timers, ns.
    pub margin: u64,
    /// ADUs it looks at.
    pub walk: usize,
    /// ADUs it gives up at once.
    pub rounds: usize,
    /// What it does about packets that hold the link longer than more important ones,
    /// which are not there yet, can wait.
    pub guard: Guard,
    /// What it does when its plan cannot be trusted.
    pub sure: Sure,
    /// 2: half the rate.
    pub slower: f64,
    /// Deadlines within so many ns count as one: the more important goes first.
    pub grain: u64,
    /// Without deadline order: the most important first, then by deadline.
    pub by_priority: bool,
    /// What is more important than the default should have time to spare: the believed owd, at most
    /// an eighth of what it could wait if the way were so many believed owds long. In the order it
    /// is due ...
    pub spare_owds: f64,
    /// ... so much (0 to 1) of that earlier.
    pub early: f64,
    /// It is planned to be there so much of that earlier, at the cost of less important ADUs ...
    pub plan_early: f64,
    /// ... and what is not so important such a part of what it can wait, at the cost of ADUs that
    /// are less important still ...
    pub layers: f64,
    /// ... also of those of which a packet was sent.
    pub from_begun: bool,
    /// Of two neighbours in the order the more important goes first if its last byte must
    /// leave before the other's. (Deadlines are for the first byte of a last packet.)
    pub by_end: bool,
    /// An ADU is planned behind what is still to come and has to go before it, as it came of late.
    pub expects: bool,
    /// ADUs are planned to be in time on a path that is longer by so many believed owds.
    pub care: f64,
}

impl Triage {
    /// The queue as it is.
    pub const KERNEL: Self = Self {
        when: When::Dequeue,
        first_bit: true,
        guard: Guard::Wait,
        grain: 1 << 20,
        spare_owds: 2.0,
        early: 1.0,
        plan_early: 1.0,
        layers: 0.25,
        from_begun: false,
        by_end: true,
        expects: true,
        ..Self::LAST_BIT
    };

    /// The queue as it was at first (commit df6bac4).
    pub const LAST_BIT: Self = Self {
        when: When::Arrival,
        victim: Victim::MostLeft,
        size: Size::Arrived,
        keep_begun: false,
        first_bit: false,
        margin: 200_000,
        walk: 128,
        rounds: 4,
        guard: Guard::None,
        sure: Sure::Never,
        slower: 1.25,
        grain: 0,
        by_priority: false,
        spare_owds: 1.0,
        early: 0.0,
        plan_early: 0.0,
        layers: 0.0,
        from_begun: true,
        by_end: false,
        expects: false,
        care: 0.0,
    };
}
