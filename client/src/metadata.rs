//! What an application says about a packet.

use crate::{
    error::ValueError,
    time::{Deadline, Lifetime},
};

/// Importance, 0 to 7; **0 is sent first** and given up last. 3 is the default
/// (the scale of RFC 9218 urgency).
///
/// ```
/// use bestby::Priority;
///
/// const AUDIO: Priority = Priority::HIGHEST;
/// let video = Priority::new(4)?;
/// assert!(AUDIO < video && Priority::new(8).is_err());
/// # Ok::<(), bestby::ValueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// 0: sent first.
    pub const HIGHEST: Self = Self(0);
    /// 7: sent last.
    pub const LOWEST: Self = Self(7);

    /// # Errors
    ///
    /// [`ValueError::Priority`] above 7.
    pub const fn new(priority: u8) -> Result<Self, ValueError> {
        if priority > 7 {
            Err(ValueError::Priority(priority))
        } else {
            Ok(Self(priority))
        }
    }

    /// 0 to 7.
    pub const fn get(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self((bits & 7) as u8)
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self(3)
    }
}

impl TryFrom<u8> for Priority {
    type Error = ValueError;

    fn try_from(priority: u8) -> Result<Self, ValueError> {
        Self::new(priority)
    }
}

/// What happens to a stale packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Treatment {
    /// It is sent all the same (and counted as sent stale).
    Forward,
    /// It never leaves the host, and neither does the rest of its ADU.
    Discard,
    /// Only its headers are sent (and counted as truncated), so that the receiver learns what it
    /// missed. Where that is impossible (GSO, fragments, SCTP, IPsec) it is discarded. It costs some
    /// 4,500 instructions for each packet, stale or not.
    Truncate,
}

/// Rolling id (1 to 7) of an application data unit, e.g. of one video frame:
/// packets of one flow with the same id and the same deadline share their fate.
/// The mark has three bits for it; seven ids before reuse are enough, because
/// the deadline takes part in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AduId(u8);

impl AduId {
    /// # Errors
    ///
    /// [`ValueError::AduId`] outside of 1 to 7 (0 means "no ADU" on the wire).
    pub const fn new(id: u8) -> Result<Self, ValueError> {
        if id >= 1 && id <= 7 {
            Ok(Self(id))
        } else {
            Err(ValueError::AduId(id))
        }
    }

    /// 1 to 7.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The following id; 7 is followed by 1.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 % 7 + 1)
    }
}

/// Hands out [`AduId`]s in a ring: 1, 2, … 7, 1, … Take one id per frame. Keep **one ring
/// per flow** (socket and destination), also where it carries several streams: two frames that
/// had the same id and the same deadline would be taken for one.
///
/// ```
/// let mut frames = bestby::AduIds::default();
/// let ids: Vec<u8> = frames.by_ref().take(8).map(|id| id.get()).collect();
/// assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 1]);
/// ```
#[derive(Clone, Debug)]
pub struct AduIds {
    next: AduId,
}

impl AduIds {
    /// The next id; the ring has no end.
    pub fn take_id(&mut self) -> AduId {
        let id = self.next;
        self.next = id.next();
        id
    }
}

impl Default for AduIds {
    fn default() -> Self {
        Self { next: AduId(1) }
    }
}

impl Iterator for AduIds {
    type Item = AduId;

    fn next(&mut self) -> Option<AduId> {
        Some(self.take_id())
    }
}

/// Until when a packet is of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// Nothing is said: the socket's lifetime or the operator's rule decides,
    /// and without either the packet is never stale. A *mark* that says something
    /// else (a priority, say) also says that there is no deadline.
    #[default]
    Unset,
    /// At this time; for applications that know when the data was created.
    At(Deadline),
    /// This long after it was sent.
    After(Lifetime),
}

/// What an application says about one packet. Empty by default: such a packet
/// is sent exactly as without this crate.
///
/// ```
/// use std::time::Duration;
/// use bestby::{AduIds, Deadline, Metadata, Priority, Treatment};
///
/// let mut frames = AduIds::default();
/// // One video frame: all of its packets get the same metadata.
/// let frame = Metadata::new()
///     .deadline(Deadline::after(Duration::from_millis(200)))
///     .priority(Priority::new(4)?)
///     .treatment(Treatment::Discard)
///     .adu(frames.take_id());
/// assert!(!frame.is_empty() && Metadata::new().is_empty());
/// # Ok::<(), bestby::ValueError>(())
/// ```
///
/// What each form carries:
///
/// | | mark | `SO_TXTIME` | plain |
/// |---|---|---|---|
/// | deadline | in units of 250 µs, rounded down, at most 65 s ahead | ns | no |
/// | no deadline | "none", whatever socket and rules say | socket and rules decide | socket and rules decide |
/// | lifetime | in units of 250 µs, rounded down but never to 0 | as deadline = now + lifetime | no |
/// | priority | always: 3 where none is given | through `SO_PRIORITY` (see [`crate::Sender::priority_scope`]) | no |
/// | treatment | yes | no (set it on the socket) | no |
/// | ADU | yes | packets with exactly the same deadline are one ADU | no |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    pub(crate) expiry: Expiry,
    pub(crate) priority: Option<Priority>,
    pub(crate) treatment: Option<Treatment>,
    pub(crate) adu: Option<AduId>,
}

impl Metadata {
    /// Nothing said.
    pub const fn new() -> Self {
        Self {
            expiry: Expiry::Unset,
            priority: None,
            treatment: None,
            adu: None,
        }
    }

    /// Of no use after `deadline`; replaces a lifetime.
    #[must_use]
    pub const fn deadline(mut self, deadline: Deadline) -> Self {
        self.expiry = Expiry::At(deadline);
        self
    }

    /// Of no use `lifetime` after it is sent; replaces a deadline. The packets
    /// of an ADU are not sent at the same moment: better give them a deadline. (In the mark form,
    /// and for RTP, the data path counts from the first packet of the ADU it sees.)
    #[must_use]
    pub const fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.expiry = Expiry::After(lifetime);
        self
    }

    /// How important it is. A mark always carries a priority, so that without
    /// this call a marked packet has [`Priority::default`], whatever the
    /// socket or the operator's rule says.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// What happens to it when stale. Without this call the socket's treatment or the
    /// operator's rule decides, and without either: [`Treatment::Discard`].
    #[must_use]
    pub const fn treatment(mut self, treatment: Treatment) -> Self {
        self.treatment = Some(treatment);
        self
    }

    /// Which ADU it belongs to. RTP needs none: the data path reads SSRC and timestamp.
    #[must_use]
    pub const fn adu(mut self, adu: AduId) -> Self {
        self.adu = Some(adu);
        self
    }

    /// Until when it is of use.
    pub const fn get_expiry(&self) -> Expiry {
        self.expiry
    }

    /// Its priority, if given.
    pub const fn get_priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Its treatment, if given.
    pub const fn get_treatment(&self) -> Option<Treatment> {
        self.treatment
    }

    /// Its ADU, if given.
    pub const fn get_adu(&self) -> Option<AduId> {
        self.adu
    }

    /// True if nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_and_adu_id_out_of_range_are_refused() {
        assert_eq!(Priority::new(7).unwrap().get(), 7);
        assert_eq!(Priority::new(8), Err(ValueError::Priority(8)));
        assert_eq!(Priority::default().get(), 3);
        assert_eq!(AduId::new(0), Err(ValueError::AduId(0)));
        assert_eq!(AduId::new(8), Err(ValueError::AduId(8)));
        assert_eq!(AduId::new(7).unwrap().next(), AduId::new(1).unwrap());
    }
}
