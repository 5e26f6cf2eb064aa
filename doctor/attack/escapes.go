package attack

// escapes returns the attacks that try to leave the runner or to gain privileges.
func escapes() []Attack {
	var all []Attack
	for _, row := range []struct {
		call, tries string
		by          Defence
	}{
		{"mount", "to mount a file system", Filter},
		{"bind", "to bind-mount one directory over another", Filter},
		{"remount", "to make the root writable", Filter},
		{"umount", "to uncover the files below a mount", Filter},
		{"pivot_root", "to change the root", Filter},
		{"chroot", "to get a new root from which it can escape", Filter},
		{"open_tree", "to copy a mount tree", Filter},
		{"fsopen", "to mount a file system with the newer calls", Filter},
		{"unshare", "to become root of a user namespace, which gives access to more of the kernel", Filter},
		{"unshare-net", "to get a network namespace", Filter},
		{"clone-user", "to become root of a user namespace in a new process", Filter},
		{"setns", "to enter a namespace", Filter},
		{"mknod-disk", "to create a device file for the machine's disk", OwnUsers},
		{"mknod-mem", "to create a device file for the machine's memory", OwnUsers},
		{"open_by_handle", "to open a file of the machine by its handle", Filter},
		{"name_to_handle", "to learn file handles", Filter},
		{"ptrace", "to take over the agent", Filter},
		{"ptrace-seize", "to take over the agent with the newer call", Filter},
		{"process_vm_readv", "to read the agent's memory", Filter},
		{"process_vm_writev", "to write into the agent's memory", Filter},
		{"pidfd_getfd", "to copy a file descriptor of the agent", Filter},
		{"sethostname", "to rename the machine", Filter},
	} {
		all = append(all, barred(Escapes, row.call, row.tries, row.by))
	}
	return append(all,
		Attack{
			Name: "becoming root", Class: Escapes, Defence: Capabilities, Tries: "to become root of the runner",
			Steps: []Step{calls("setuid", "setgid", "setgroups", "capset")},
			Held:  "^setuid EPERM\nsetgid EPERM\nsetgroups EPERM\ncapset EPERM\n=> EXITED 0",
		},
		Attack{
			Name: "capabilities of a program", Class: Escapes, Defence: Capabilities, Tries: "to have or gain capabilities",
			Steps: []Step{shell("grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb):' /proc/self/status")},
			Held:  "^CapInh:\t0+\nCapPrm:\t0+\nCapEff:\t0+\nCapBnd:\t0+\nCapAmb:\t0+\n=> EXITED 0", Tiers: shared,
		},
		Attack{
			Name: "capabilities of root", Class: Escapes, Defence: OwnUsers, Tries: "as root of the runner, to have capabilities beyond file access",
			Steps: []Step{shell("grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb):' /proc/self/status").asRoot()},
			// chown, dac_override, fowner, kill
			Held: "^CapInh:\t0+\nCapPrm:\t0+2b\nCapEff:\t0+2b\nCapBnd:\t0+2b\nCapAmb:\t0+\n=> EXITED 0", Tiers: shared,
		},
		Attack{
			Name: "a set-user-id program", Class: Escapes, Defence: NoPrivileges, Tries: "to become root through a set-user-id program",
			Steps: []Step{
				shell("cp /usr/bin/id /workspace/id 2>/dev/null || cp /bin/busybox /workspace/id; chmod 4755 /workspace/id; ls -l /workspace/id | cut -c1-10").asRoot(),
				shell("/workspace/id -u; grep NoNewPrivs: /proc/self/status"),
			},
			Held: "^-rwsr-xr-x\n=> EXITED 0\n1000\nNoNewPrivs:\t1\n=> EXITED 0",
		},
		Attack{
			Name: "unsafe mounts", Class: Escapes, Defence: Mounts, Tries: "to find a writable mount that allows set-user-id programs or device files",
			Steps: []Step{shell(`while read -r id parent device root at options rest; do
	case $at in /proc|/proc/*|/dev/*|/dev) continue;; esac
	case ,$options, in *,ro,*) ;; *,nosuid,*) ;; *) echo "power $at $options";; esac
	case ,$options, in *,ro,*) ;; *,nodev,*) ;; *) echo "power $at $options";; esac
done </proc/self/mountinfo; echo looked`)},
			Held: "^looked\n=> EXITED 0", Never: "power", Tiers: shared,
		},
		Attack{
			Name: "escape from a chroot", Class: Escapes, Defence: Filter, Tries: "as root of the runner, to escape from a chroot",
			Steps: []Step{probe("chroot").asRoot()}, Held: "^chroot EPERM\n=> EXITED 0",
		},
		Attack{
			Name: "the agent's files in /proc", Class: Escapes, Defence: OtherUser, Tries: "to read the agent's files in /proc",
			Steps: []Step{shell("for f in environ mem maps auxv root/etc cwd/etc fd/0 fd/3 stack syscall; do (head -c 1 /proc/1/$f >/dev/null || ls /proc/1/$f/) 2>/dev/null && echo got $f; done; echo tried")},
			Held:  "^tried\n=> EXITED 0", Never: "got",
		},
		Attack{
			Name: "the agent's files as root", Class: Escapes, Defence: HiddenAgent, Tries: "as root of the runner, to read the agent's files in /proc",
			Steps: []Step{shell("for f in environ mem maps auxv root/etc cwd/etc fd/0 fd/3; do (head -c 1 /proc/1/$f >/dev/null || ls /proc/1/$f/) 2>/dev/null && echo got $f; done; echo tried").asRoot()},
			Held:  "^tried\n=> EXITED 0", Never: "got", Tiers: shared,
		},
		Attack{
			Name: "inherited descriptors", Class: Escapes, Anywhere: true, Defence: Descriptors, Tries: "to find a descriptor that the agent or the server left open",
			Steps: []Step{probe("fds"), probe("fds").asRoot()}, Held: "^inherited 0 \n=> EXITED 0\ninherited 0 \n=> EXITED 0",
		},
		Attack{
			Name: "the kernel's secrets in /proc", Class: Escapes, Defence: Masked, Tries: "to identify the machine or read its memory",
			Steps: []Step{shell("for f in kcore keys cmdline sys/kernel/random/boot_id kallsyms modules timer_list partitions interrupts; do test -n \"$(head -c 1 /proc/$f 2>/dev/null | tr '\\0' x)\" && echo got $f; done; echo tried").asRoot()},
			Held:  "^tried\n=> EXITED 0", Never: "got", Tiers: shared,
		},
		Attack{
			Name: "kernel settings", Class: Escapes, Defence: OwnUsers, Tries: "as root of the runner, to change kernel settings",
			Steps: []Step{shell("for f in sys/kernel/core_pattern sys/kernel/hostname sys/net/ipv4/ip_forward sys/net/ipv4/ip_unprivileged_port_start sys/vm/drop_caches sysrq-trigger irq/default_smp_affinity; do (cat /proc/$f 2>/dev/null || echo 0) >/tmp/v; (cat /tmp/v >/proc/$f) 2>/dev/null && echo wrote $f; done; echo tried").asRoot()},
			Held:  "^tried\n=> EXITED 0", Never: "wrote", Tiers: shared,
		},
		Attack{
			Name: "devices", Class: Escapes, Defence: OwnFiles, Tries: "to find a device of the machine",
			Steps: []Step{shell("for f in /dev/*; do case ${f#/dev/} in fd|full|null|ptmx|pts|random|shm|stderr|stdin|stdout|tty|urandom|zero|console|mqueue|core) ;; *) echo \"has $f\";; esac; done; ls -d /sys/block /sys/bus /sys/class /sys/dev /sys/firmware /sys/module 2>/dev/null | sed 's/^/has /'; echo tried").asRoot()},
			Held:  "^tried\n=> EXITED 0", Never: "has", Tiers: shared,
		},
		Attack{
			Name: "control groups", Class: Escapes, Defence: OwnGroups, Tries: "to see or leave the runner's control groups",
			Steps: []Step{shell("grep -v -x -E '[^/]*:/(run/(x[0-9]|rest))?' /proc/self/cgroup | sed 's/^/sees /'; find /sys/fs/cgroup -type d 2>/dev/null | grep -E '[0-9a-f]{8}-[0-9a-f]{4}|rockpool|slice' | sed 's/^/sees /'; " +
				"for f in $(find /sys/fs/cgroup -name cgroup.procs -o -name tasks -o -name memory.max -o -name memory.limit_in_bytes -o -name pids.max 2>/dev/null); do (echo 0 >$f) 2>/dev/null && echo sees how to write $f; done; echo tried").asRoot()},
			Held: "^tried\n=> EXITED 0", Never: "sees", Tiers: shared,
		},
		Attack{
			Name: "uids of another runner", Class: Escapes, Defence: OwnUsers, Tries: "to run as the same uid as another runner",
			Steps: []Step{shell(ownUsers), shell(ownUsers).inOther()},
			Held:  "^apart from the machine, as \\d+\n=> EXITED 0\napart from the machine, as \\d+\n=> EXITED 0", Distinct: true, Tiers: shared,
		},
		Attack{
			Name: "the machine's name", Class: Escapes, Defence: OwnName, Tries: "to learn the machine's name",
			Steps: []Step{shell("cat /proc/sys/kernel/hostname; uname -n; hostname 2>/dev/null; cat /etc/hostname; echo tried")},
			Held:  "^tried\n=> EXITED 0", Never: "^{hostname}$",
		},
		Attack{
			Name: "the machine's uptime", Class: Escapes, Defence: OwnClock, Tries: "to learn the machine's uptime",
			Steps: []Step{probe("times", "{uptime}")}, Held: "^the machine is young, \\d+ s\n=> EXITED 0", Tiers: shared,
		},
		Attack{
			Name: "killing the agent", Class: Escapes, Anywhere: true, Defence: OtherUser, Tries: "to end, stop, slow or starve the agent",
			Steps: []Step{calls("kill-agent", "stop-agent", "renice-agent", "prlimit-agent"), shell("echo lives")},
			Held:  "^kill-agent EPERM\nstop-agent EPERM\nrenice-agent E(PERM|ACCES)\nprlimit-agent E(PERM|ACCES)\n=> EXITED 0\nlives\n=> EXITED 0",
		},
		Attack{
			Name: "the OOM score", Class: Escapes, Defence: OwnUsers, Tries: "to make the kernel kill the agent instead of itself when memory runs out",
			Steps: []Step{shell("(echo -1000 >/proc/self/oom_score_adj) 2>/dev/null && echo spared; (echo 1000 >/proc/1/oom_score_adj) 2>/dev/null && echo betrayed; echo tried"), shell("(echo -1000 >/proc/self/oom_score_adj) 2>/dev/null && echo spared; echo tried").asRoot()},
			Held:  "^tried\n=> EXITED 0\ntried\n=> EXITED 0", Never: "spared|betrayed", Tiers: shared,
		},
		Attack{
			Name: "replacing the agent", Class: Escapes, Anywhere: true, Defence: OtherUser, Tries: "to replace the agent's program or its socket",
			Steps: []Step{
				shell("for f in /.rockpool/agent /local/rockpool-agent /proc/1/exe /secrets/agent.sock /run/rockpool/agent.sock; do (echo x >>$f) 2>/dev/null && echo wrote $f; mv $f $f.old 2>/dev/null && echo moved $f; done; for d in /.rockpool /local /secrets; do touch $d/attack 2>/dev/null && echo wrote $d; done; echo tried"),
				shell("echo lives"),
			},
			Held: "^tried\n=> EXITED 0\nlives\n=> EXITED 0", Never: "wrote|moved",
		},
		Attack{
			Name: "replacing the agent as root", Class: Escapes, Defence: OwnUsers, Tries: "as root of the runner, to replace the agent's program, so that the next runner starts it",
			Steps: []Step{
				shell("for f in /.rockpool/agent /etc/passwd /usr/bin/env /bin/sh /etc/ld.so.preload; do (echo x >>$f) 2>/dev/null && echo wrote $f; rm -f $f 2>/dev/null && test ! -e $f && test $f != /etc/ld.so.preload && echo removed $f; done; (cat /proc/1/exe >/dev/null) 2>/dev/null && (echo x >>/proc/1/exe) 2>/dev/null && echo wrote exe; echo tried").asRoot(),
				upload("/.rockpool/agent", "#!/bin/sh\n"), upload("/usr/bin/env", "#!/bin/sh\n"), upload("/etc/passwd", "root::0:0::/:/bin/sh\n"),
				shell("echo lives"),
			},
			Held: "^tried\n=> EXITED 0\n=> refused \\w+ .*\n=> refused \\w+ .*\n=> refused \\w+ .*\nlives\n=> EXITED 0", Never: "wrote|removed",
		},
	)
}

// ownUsers is a script that prints which uid of the machine the runner's root is.
const ownUsers = `read -r a outside c </proc/self/uid_map; test $outside -ge 100000 && test $c -le 65536 && echo apart from the machine, as $outside`
