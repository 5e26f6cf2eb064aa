package session

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// hintBytes is how many bytes of the end of standard error the rules read.
const hintBytes = 4 << 10

// hintAbout returns what may have gone wrong in an ended execution, for people, for example what
// it lacks. Without a hint it returns "". env is its runner's environment. stderr ends with the last hintBytes
// bytes of its standard error.
func hintAbout(x runtime.Execution, env runtime.Environment, stderr []byte) string {
	if x.Passed() || x.End.Outcome == runtime.OutcomeCancelled {
		return ""
	}
	c := failure{x, env, string(stderr[max(0, len(stderr)-hintBytes):])}
	if x.End.Outcome == runtime.OutcomeFailed {
		c.stderr += "\n" + x.End.Message
	}
	for _, r := range rules {
		found := []string{""}
		if r.pattern != nil {
			found = r.pattern.FindStringSubmatch(c.stderr)
		}
		if found == nil || r.when != nil && !r.when(c) {
			continue
		}
		return r.text(c, strings.Join(found[1:], ""))
	}
	return ""
}

type failure struct {
	x      runtime.Execution
	env    runtime.Environment
	stderr string // and the message of a program that couldn't be started
}

type rule struct {
	pattern *regexp.Regexp                      // finds it in stderr; nil means that when alone decides
	when    func(c failure) bool                // nil means always
	text    func(c failure, name string) string // name is what the pattern's groups found
}

// name matches the name of a module or a package. No shell reads it, whatever a program prints.
const name = `([\w@./:+-]{1,100})`

// rules are in order: the first one that applies decides.
var rules = []rule{
	{nil, unprinted, say("it printed nothing, but its output may have been buffered: flush it after each line, or run the program on a terminal")},
	{re(`(?m)^sudo: |\bsudo: (?:command )?not found|are you root\?|Could not open lock file|requested operation requires superuser privilege`), nil,
		say("programs aren't root in a runner and can't install system packages: use an image that has them")},
	{re(`ModuleNotFoundError: No module named '` + name + `'`), nil, pythonModule},
	{re(`Error: Cannot find (?:module|package) '` + name + `'|cannot load such file -- ` + name + ` \(LoadError\)|Can't locate ` + name + ` in @INC|module '` + name + `' not found:|` +
		`there is no package called .` + name + `.|error: package ` + name + ` does not exist|no required module provides package ` + name + `|cannot find module providing package ` + name + `|` +
		`can't find crate for .` + name + `.|Could not find module .` + name + `.|fatal error: ` + name + `: No such file|` +
		`(?i:error (?:while )?loading shared librar(?:y|ies):?) ` + name + `: `), nil, module},
	{re(`(?i)No matching distribution found for|externally-managed-environment|in registry .crates-io.|module lookup disabled by GOPROXY=off|\(EAI_AGAIN\)|ENOTCACHED|in offline mode|network was disabled|` +
		`unable to access index for repository|cannot open URL 'http|Unable to locate package|Unable to fetch some archives|Could not find a valid gem`), offline, noNetwork},
	{nil, func(c failure) bool { return offline(c) && isUnreachable(c) }, noNetwork},
	{re(`EROFS: read-only file system, \w+ '(/[^'\s]{1,100})'|Read-only file system: '(/[^'\s]{1,100})'|['"\s‘](/[^'"\s:’]{1,100})['"’]?: Read-only file system`), nil, func(_ failure, path string) string {
		return path + " is read-only in a runner: write to " + runtime.Workspace + " or /tmp, or use an image that has the file"
	}},
	{nil, isFull, full},
	{re(`(?i)file too large|\bEFBIG\b|file size limit exceeded`), func(c failure) bool { return c.x.Limits.FileSize > 0 }, func(c failure, _ string) string {
		return fmt.Sprintf("its limit for the size of one file is %d bytes (limits.fileSize): it also holds for files in memory, such as those of memfd_create and shared memory", c.x.Limits.FileSize)
	}},
	{nil, func(c failure) bool { return homeOf(c) != "" }, func(c failure, _ string) string {
		return "runners don't see " + homeOf(c) + " of the server's machine: install the program in /usr/local, or use an image that has it"
	}},
	{re(`(?im)^\S*sh:\d+: no such file or directory: ` + name + `|^(?:\S*sh: |(?:\S+: )?line \d+: )?` + name + `: no such file or directory`), notStarted, ownFile},
	{re(name + `: (?:command )?not found|command not found: ` + name + `|['‘]` + name + `['’]: No such file or directory|: the interpreter in its first line`), notStarted, noProgram},
}

// unreachable matches the words of resolvers and connections without a network.
var unreachable = re(`(?i)temporary failure in name resolution|temporary failure resolving|name or service not known|could not resolve host|unable to resolve host|bad address '|network is unreachable|\bENETUNREACH\b|\bEAI_AGAIN\b|getaddrinfo ENOTFOUND`)

func re(pattern string) *regexp.Regexp { return regexp.MustCompile(pattern) }

func say(text string) func(failure, string) string {
	return func(failure, string) string { return text }
}

// unprinted reports whether a limit ended a program that printed nothing. A limit ends it with SIGKILL, and
// what is still in its buffers then is lost.
func unprinted(c failure) bool {
	switch c.x.End.Outcome {
	case runtime.OutcomeTimeLimit, runtime.OutcomeCPULimit, runtime.OutcomeMemoryLimit, runtime.OutcomeProcessLimit:
		return c.x.Usage.OutputBytes == 0 && c.x.Terminal == nil
	}
	return false
}

func offline(c failure) bool {
	return !c.env.Network.Access && c.env.Isolation != runtime.IsolationNone
}

// isUnreachable reports whether the program's last words are about the network. One that logs such a line and
// continues fails for another reason.
func isUnreachable(c failure) bool {
	const last = 512
	return unreachable.MatchString(c.stderr[max(0, len(c.stderr)-last):])
}

func noNetwork(c failure, _ string) string {
	return fmt.Sprintf("the environment %s has no network access: use an image that has what it needs, or let an OPERATOR allow it with `rockpool env put %s --network`, if the server runs with --network", c.env.ID, c.env.ID)
}

// noSpace matches the words of a full file system, and notDisk those of other bounds with the same errno.
var (
	noSpace = re(`(?i)no space left on device|\bENOSPC\b`)
	notDisk = re(`(?i)inotify|watch|openpty`)
)

// isFull reports whether a file system was full. The call may be in the two lines before, as in Python.
func isFull(c failure) bool {
	lines := strings.Split(c.stderr, "\n")
	for i, line := range lines {
		if noSpace.MatchString(line) && !notDisk.MatchString(strings.Join(lines[max(0, i-2):i+1], "\n")) {
			return true
		}
	}
	return false
}

func full(c failure, _ string) string {
	return fmt.Sprintf("a directory was full: %s holds %d MiB, /tmp twice that, each with at most 1,024 files and 256 more for each MiB (`rockpool env put %s --workspace SIZE`); /dev/shm holds half of the memory",
		runtime.Workspace, c.env.Resources.WorkspaceMiB, c.env.ID)
}

// module advises on a module that the program imports and the environment lacks. A path is the program's
// own file.
func module(c failure, module string) string {
	if strings.HasPrefix(module, ".") || strings.HasPrefix(module, "/") {
		return fmt.Sprintf("also upload the file of %s", module)
	}
	text := fmt.Sprintf("the environment lacks the module %s: use an image that has it (`rockpool env put %s --image IMAGE`), or upload your own module", module, c.env.ID)
	if c.env.Image == runtime.DefaultImage {
		text += "; for the image host, install it on the server's machine"
	}
	return text
}

func pythonModule(c failure, name string) string {
	return module(c, name) + fmt.Sprintf(" (if the image has it, --warm-module %s loads it in advance)", name)
}

var homes = re(`(/root|/home)/\S+: (?:\d+: )?(?:not found|No such file|Permission denied|no such file)`)

// homeOf returns the home directory of a program that couldn't be started; "" means that it is elsewhere.
func homeOf(c failure) string {
	if found := homes.FindStringSubmatch(c.stderr); found != nil && notStarted(c) && c.env.Image == runtime.DefaultImage {
		return found[1]
	}
	return ""
}

// notStarted reports whether the exit code is that of a shell for a program that can't be started. Without
// the working directory it has the same code.
func notStarted(c failure) bool {
	ofProgram := c.x.End.Outcome == runtime.OutcomeExited || len(c.x.Command) > 0 && strings.HasPrefix(c.x.End.Message, c.x.Command[0]+": ")
	return (c.x.End.ExitCode == 126 || c.x.End.ExitCode == 127) && ofProgram
}

func ownFile(c failure, name string) string {
	if strings.HasPrefix(name, "/") && !strings.HasPrefix(name, runtime.Workspace+"/") {
		return noProgram(c, "")
	}
	return fmt.Sprintf("also upload the file of %s; if it is there, its first line (#!) names a missing program", name)
}

func noProgram(c failure, name string) string {
	if strings.Contains(name, "/") {
		return ownFile(c, name)
	}
	return fmt.Sprintf("the image %q of the environment %s lacks the program: choose another environment with --env (`rockpool env list` lists them), or change the image with `rockpool env put ENVIRONMENT --image IMAGE`", c.env.Image, c.env.ID)
}
