//! A hash index that keeps positions only: 8 to 16 bytes for each entry, where a map that keeps its keys takes over
//! 100. The keys stay where they are kept anyway, and the caller compares them.

/// Marks a free slot; no position reaches it (`MAX_SPANS` is far below).
const FREE: u32 = u32::MAX;
/// Slots of the first table. A power of two, as every later size is.
const FIRST_SLOTS: usize = 1024;

/// Positions, found by hash. Open addressing, linear probing, at most half full.
#[derive(Debug, Default)]
pub(super) struct Index {
    slots: Vec<u32>,
    entries: usize,
}

impl Index {
    /// The position with this hash for which `is_it` holds.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut slot = home(hash, self.slots.len());
        // Ends because at least half of the slots are free.
        while self.slots[slot] != FREE {
            if is_it(self.slots[slot]) {
                return Some(self.slots[slot]);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        None
    }

    /// Adds a position that is not in the index yet. `hash_of` is asked for every entry when the table grows.
    pub(super) fn insert(&mut self, hash: u64, position: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.entries + 1) * 2 > self.slots.len() {
            let grown = vec![FREE; (self.slots.len() * 2).max(FIRST_SLOTS)];
            for old in std::mem::replace(&mut self.slots, grown) {
                if old != FREE {
                    self.place(hash_of(old), old);
                }
            }
        }
        self.place(hash, position);
        self.entries += 1;
    }

    fn place(&mut self, hash: u64, position: u32) {
        let mut slot = home(hash, self.slots.len());
        while self.slots[slot] != FREE {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = position;
    }
}

/// Where a hash belongs in a table of a power of two.
#[expect(clippy::cast_possible_truncation, reason = "the low bits are all that is wanted")]
fn home(hash: u64, slots: usize) -> usize {
    hash as usize & (slots - 1)
}
