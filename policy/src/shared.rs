// SPDX-License-Identifier: Apache-2.0
//! A value that copies of the books share until one of them changes it.
//!
//! Views are made from a copy of the books while the books go on (`broker/src/views/`). With a thousand jobs a copy of
//! everything takes milliseconds, in which nothing else is decided; one that shares the jobs takes a hundredth of that.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A shared value. To change one that another copy has, too, copies it first: so ask before whether there is anything
/// to change, where every job is asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T: Clone> Shared<T> {
    /// The value itself.
    pub(crate) fn into_inner(self) -> T {
        Arc::unwrap_or_clone(self.0)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_one_copy_is_no_change_of_the_other() {
        let mut one = Shared::new(vec![1]);
        let other = one.clone();
        assert!(std::ptr::eq(&*one, &*other));
        one.push(2);
        assert_eq!((one.into_inner(), other.into_inner()), (vec![1, 2], vec![1]));
    }
}
