package session

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// ended returns an execution that exited with a code.
func ended(code int) runtime.Execution {
	return runtime.Execution{State: runtime.ExecutionFinished, End: runtime.End{Outcome: runtime.OutcomeExited, ExitCode: code}, Usage: runtime.Usage{OutputBytes: 1}}
}

func TestHint(t *testing.T) {
	lab := runtime.Environment{ID: "lab", Image: "python:3", Isolation: runtime.IsolationNamespaces, Resources: runtime.Resources{WorkspaceMiB: 64}}
	const network, system, buffered = "rockpool env put lab --network", "can't install system packages", "may have been buffered"
	for _, test := range []struct{ name, stderr, says string }{
		{"a failure", "ValueError: 1\n", ""},
		{"python's resolver", "socket.gaierror: [Errno -3] Temporary failure in name resolution\n", network},
		{"curl", "curl: (6) Could not resolve host: example.org", network},
		{"wget", "wget: unable to resolve host address 'a'", network},
		{"busybox", "wget: bad address 'example.org'", network},
		{"git", "fatal: unable to access 'https://a/': Could not resolve host: a", network},
		{"connect", "connect: Network is unreachable", network},
		{"node", "Error: getaddrinfo ENOTFOUND example.org", network},
		{"npm", "npm ERR! code EAI_AGAIN\nnpm ERR! syscall getaddrinfo\nnpm ERR! request to https://registry.npmjs.org/x failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org", network},
		{"pip", "ERROR: Could not find a version that satisfies the requirement numpy\nERROR: No matching distribution found for numpy", network},
		{"go", "x.go:2:8: cannot find module: module lookup disabled by GOPROXY=off", network},
		{"cargo", "error: failed to download `a v1`\n  attempting to make an HTTP request, but --offline was specified: in offline mode", network},
		{"R", "Warning: unable to access index for repository https://cloud.r-project.org/src/contrib:\n  cannot open URL 'https://x'", network},
		{"uv", "error: Failed to fetch: network was disabled because offline", network},
		{"pip of Debian", "error: externally-managed-environment\n", network},
		{"pip of Debian, in full", "error: externally-managed-environment\n\n" + strings.Repeat("try apt install\n", 60), network},
		{"gem", "ERROR:  Could not find a valid gem 'x' (>= 0), here is why:", network},
		{"apt-get without packages", "E: Unable to locate package x", network},
		{"apt-get", "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)\nE: Unable to acquire the dpkg frontend lock, are you root?", system},
		{"sudo", "sh: 1: sudo: not found", system},
		{"sudo without privileges", "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.", system},
		{"connection to a port of its own", "connect: Connection refused", ""},
		{"a network and a module", "Network is unreachable\nModuleNotFoundError: No module named 'requests'", "lacks the module requests: use an image that has it (`rockpool env put lab --image IMAGE`)"},
		{"a module of python", "ModuleNotFoundError: No module named 'numpy.x'\n", "--warm-module numpy.x loads"},
		{"a module of node", "Error: Cannot find module 'left-pad'", "lacks the module left-pad"},
		{"an own file of node", "Error: Cannot find module './lib'", "also upload the file of ./lib"},
		{"a module of a scope", "Error: Cannot find module '@a/b-c.js'", "or upload your own module"},
		{"a module of ruby", "a.rb:1:in `require': cannot load such file -- nokogiri (LoadError)", "lacks the module nokogiri"},
		{"a module of perl", "Can't locate JSON/XS.pm in @INC (you may need to install", "lacks the module JSON/XS.pm"},
		{"a module of R", "Error in library(dplyr) : there is no package called ‘dplyr’", "lacks the module dplyr"},
		{"a package of java", "A.java:1: error: package org.junit does not exist", "lacks the module org.junit"},
		{"a module of go", "x.go:2:8: no required module provides package github.com/a/b: go.mod file not found", "lacks the module github.com/a/b"},
		{"a header of C", "x.c:1:10: fatal error: gmp.h: No such file or directory", "lacks the module gmp.h"},
		{"a command as a module", "ModuleNotFoundError: No module named '$(curl evil|sh)'", ""},
		{"an option as a module", "ModuleNotFoundError: No module named 'a --image b'", ""},
		{"a read-only file of python", "OSError: [Errno 30] Read-only file system: '/usr/x'", "/usr/x is read-only in a runner: write to /workspace"},
		{"a read-only file of node", "Error: EROFS: read-only file system, open '/opt/x'", "/opt/x is read-only"},
		{"a read-only file of touch", "touch: cannot touch '/usr/local/x': Read-only file system", "/usr/local/x is read-only"},
		{"a full workspace", "OSError: [Errno 28] No space left on device: 'x'", "/workspace holds 64 MiB, /tmp twice that, each with at most 1,024 files"},
		{"a full disk of node", "Error: ENOSPC: no space left on device, write", "env put lab --workspace"},
		{"file size limit of its own", "OSError: [Errno 27] File too large", ""},
		{"a full disk of python", "Traceback (most recent call last):\n  File \"x.py\", line 2, in <module>\n    f.write(b)\nOSError: [Errno 28] No space left on device\n", "/workspace holds"},
		{"a full disk after a watch", "inotify_add_watch: No space left on device\nx: polling\nx: a\ntee: y: No space left on device\n", "/workspace holds"},
		{"too many watches", "inotify_add_watch: No space left on device\n", ""},
		{"too many watches of node", "Error: ENOSPC: System limit for number of file watchers reached, watch '/workspace'", ""},
		{"too many terminals", "openpty: No space left on device", ""},
		{"too many terminals of python", "    a, b = os.openpty()\n           ^^^^^^^^^^^^\nOSError: [Errno 28] No space left on device\n", ""},
		{"error before the hint's range", "Can't locate X.pm in @INC" + strings.Repeat("x", hintBytes), ""},
		{"a log of the network", "W: Network is unreachable, using the cache\n" + strings.Repeat("step\n", 100) + "ValueError: 1\n", ""},
		{"a long failure of the network", strings.Repeat("step\n", 200) + "connect: Network is unreachable\n", network},
	} {
		if got := hintAbout(ended(1), lab, []byte(test.stderr)); test.says == "" && got != "" || !strings.Contains(got, test.says) {
			t.Errorf("%s: %q, not %q", test.name, got, test.says)
		}
		if got := hintAbout(ended(0), lab, []byte(test.stderr)); got != "" {
			t.Errorf("%s, and it passed: %q, want \"\"", test.name, got)
		}
		open := lab
		open.Network.Access = true
		if got := hintAbout(ended(1), open, []byte(test.stderr)); strings.Contains(got, network) {
			t.Errorf("%s, with a network: %q", test.name, got)
		}
	}
	limit := func(bytes int64) runtime.Execution {
		x := ended(0)
		x.End, x.Usage.OutputBytes = runtime.End{Outcome: runtime.OutcomeTimeLimit}, bytes
		return x
	}
	small := ended(1)
	small.Limits.FileSize = 20_000_000
	if got := hintAbout(small, lab, []byte("OSError: [Errno 27] File too large")); !strings.Contains(got, "one file is 20000000 bytes (limits.fileSize)") {
		t.Errorf("a limit of files: %q", got)
	}
	onTerminal := limit(0)
	onTerminal.Terminal = &runtime.TerminalSize{}
	failed := func(code int, message string) runtime.Execution {
		x := ended(0)
		x.End = runtime.End{Outcome: runtime.OutcomeFailed, ExitCode: code, Message: message}
		command, _, _ := strings.Cut(message, ":")
		x.Command = []string{command}
		return x
	}
	inDir := func(message string) runtime.Execution {
		x := failed(127, message)
		x.Command = []string{"python3", "x.py"}
		return x
	}
	host := lab
	host.Image = runtime.DefaultImage
	for _, test := range []struct {
		name   string
		x      runtime.Execution
		env    runtime.Environment
		stderr string
		says   string
	}{
		{"a limit without output", limit(0), lab, "", buffered},
		{"a limit with output", limit(1), lab, "", ""},
		{"a limit on a terminal", onTerminal, lab, "", ""},
		{"exit 127 of the shell", ended(127), lab, "sh: x: not found", `the image "python:3" of the environment lab lacks the program: choose another environment with --env` + " (`rockpool env list`"},
		{"missing program", failed(127, "ruby: command not found"), lab, "", `the image "python:3"`},
		{"sudo", failed(127, "sudo: command not found"), lab, "", system},
		{"no interpreter", failed(127, "x: the interpreter in its first line (#!) doesn't exist"), lab, "", "--image IMAGE"},
		{"no working directory", inDir("src: no such file or directory"), lab, "", ""},
		{"no working directory in a home", inDir("/root/x: no such file or directory"), host, "", ""},
		{"line ends of another system", failed(127, "./x.sh: the first line (#!) ends in a carriage return (CR), which the kernel takes as part of the interpreter's name: save the file with Unix line ends (LF)"), lab, "", ""},
		{"an own file", failed(127, "./missing: no such file or directory"), lab, "", "also upload the file of ./missing"},
		{"an own file by its whole path", failed(127, "/workspace/missing: no such file or directory"), lab, "", "also upload the file of /workspace/missing"},
		{"an own file, by sh", ended(127), lab, "sh: 1: ./missing: not found\n", "also upload the file of ./missing"},
		{"an own file, by bash", ended(127), lab, "bash: line 1: ./missing: No such file or directory\n", "also upload the file of ./missing"},
		{"an own script of bash", ended(127), lab, "bash: missing.sh: No such file or directory\n", "also upload the file of missing.sh"},
		{"an own file, by zsh", ended(127), lab, "zsh:1: no such file or directory: bin/missing\n", "also upload the file of bin/missing"},
		{"a program, by its path", failed(127, "/opt/x: no such file or directory"), lab, "", "lacks the program"},
		{"a program, by bash", ended(127), lab, "./run.sh: line 3: ruby: command not found\n", "lacks the program"},
		{"a program, by zsh", ended(127), lab, "zsh:1: command not found: ruby\n", "lacks the program"},
		{"a program, by env", ended(127), lab, "/usr/bin/env: ‘ruby’: No such file or directory\n", "lacks the program"},
		{"a library", ended(127), lab, "./x: error while loading shared libraries: libx.so.1: cannot open shared object file: No such file or directory\n", "lacks the module libx.so.1"},
		{"a library, by musl", ended(127), lab, "Error loading shared library libx.so.1: No such file or directory (needed by ./x)\n", "lacks the module libx.so.1"},
		{"exit 127 without words", ended(127), lab, "", ""},
		{"exit 127 with other words", ended(127), lab, "ValueError: 1\n", ""},
		{"missing program, but exit 1", ended(1), lab, "sh: 1: x: not found\n", ""},
		{"not executable", failed(126, "x: isn't executable"), lab, "", ""},
		{"a module of the machine", ended(1), host, "ModuleNotFoundError: No module named 'numpy'", "install it on the server's machine (if the image has it, --warm-module numpy loads"},
		{"a program in root's home", failed(127, "/root/.local/bin/uv: no such file or directory"), host, "", "runners don't see /root of the server's machine: install the program in /usr/local"},
		{"a program in root's home, by sh", ended(127), host, "sh: 1: /root/.local/bin/uv: not found\n", "runners don't see /root"},
		{"a data file in a home", ended(1), host, "cat: /home/ada/data.csv: No such file or directory\n", ""},
		{"a program in root's home of an image", failed(127, "/root/.local/bin/uv: no such file or directory"), lab, "", "lacks the program"},
	} {
		if got := hintAbout(test.x, test.env, []byte(test.stderr)); test.says == "" && got != "" || !strings.Contains(got, test.says) {
			t.Errorf("%s: %q, not %q", test.name, got, test.says)
		}
	}
}
