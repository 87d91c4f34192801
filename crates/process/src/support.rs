//! Can containers be made on this system at all, and if not, which switch forbids it?

use std::io;
use std::path::Path;

use crate::sys;

/// Containers cannot be made here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this system does not allow the namespaces that pods need ({error}): {advice}")]
pub struct Unsupported {
    /// What the kernel said.
    pub error: String,
    /// Which setting forbids it, and the command that changes it.
    pub advice: String,
}

/// One sysctl that can forbid user namespaces.
struct Switch {
    name: &'static str,
    forbids: fn(i64) -> bool,
    remedy: &'static str,
}

const SWITCHES: [Switch; 3] = [
    Switch {
        name: "user.max_user_namespaces",
        forbids: |value| value == 0,
        remedy: "sudo sysctl -w user.max_user_namespaces=15000",
    },
    Switch {
        name: "kernel.unprivileged_userns_clone",
        forbids: |value| value == 0,
        remedy: "sudo sysctl -w kernel.unprivileged_userns_clone=1",
    },
    Switch {
        name: "kernel.apparmor_restrict_unprivileged_userns",
        forbids: |value| value != 0,
        remedy: "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    },
];

/// Tries what a container needs (in a child process, nothing is changed) and explains a refusal.
///
/// # Errors
/// Names the sysctl that forbids it, or else what the kernel said.
pub fn check_support() -> Result<(), Unsupported> {
    let user_namespace = needs_user_namespace();
    sys::probe_namespaces(user_namespace).map_err(|error| diagnose(&error, user_namespace, Path::new("/proc/sys")))
}

/// Everyone but root needs a user namespace to be allowed the others.
pub(crate) fn needs_user_namespace() -> bool {
    !rustix::process::geteuid().is_root()
}

fn diagnose(error: &io::Error, user_namespace: bool, sysctls: &Path) -> Unsupported {
    let advice = SWITCHES
        .iter()
        .filter(|_| user_namespace)
        .find(|switch| read(sysctls, switch.name).is_some_and(switch.forbids))
        .map(|switch| format!("{} is set against it; run: {}", switch.name, switch.remedy));
    let advice = advice.unwrap_or_else(|| {
        if user_namespace {
            "no sysctl forbids it; inside another container, allow it user namespaces or run as root".to_owned()
        } else {
            "root lacks CAP_SYS_ADMIN here; inside another container, run that one with --privileged".to_owned()
        }
    });
    // The kernel's word for a limit on namespaces is the one for a full disk.
    let error = match error.raw_os_error() {
        Some(libc::ENOSPC) => "the limit on their number is reached".to_owned(),
        _ => error.to_string(),
    };
    Unsupported { error, advice }
}

fn read(sysctls: &Path, name: &str) -> Option<i64> {
    std::fs::read_to_string(sysctls.join(name.replace('.', "/"))).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice_with(name: &str, value: &str) -> String {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join(name.replace('.', "/"));
        std::fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        std::fs::write(path, value).expect("sysctl");
        diagnose(&io::Error::from_raw_os_error(libc::EPERM), true, folder.path()).advice
    }

    #[test]
    fn a_refusal_names_the_sysctl_that_causes_it() {
        for (name, value) in [
            ("user.max_user_namespaces", "0\n"),
            ("kernel.unprivileged_userns_clone", "0\n"),
            ("kernel.apparmor_restrict_unprivileged_userns", "1\n"),
        ] {
            let advice = advice_with(name, value);
            assert!(advice.contains(name) && advice.contains("sudo sysctl"), "{advice}");
        }
    }

    #[test]
    fn a_permissive_sysctl_is_not_blamed() {
        assert!(!advice_with("user.max_user_namespaces", "96365\n").contains("sysctl -w"));
    }
}
