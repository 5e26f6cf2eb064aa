package runtime

import (
	"cmp"
	"slices"
)

// Workspace is the directory of a runner that its programs write to, by contract.
const Workspace = "/workspace"

// Home is the home directory of the user of programs. It isn't the workspace, so that caches of
// languages and settings of tools are no files of the program. Every runner has a bounded /tmp.
const Home = "/tmp/home"

// Shell is the program that runs a shell string, given to it as one argument.
const Shell = "/bin/sh"

// SearchPath are the directories with the programs of an image.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// MachinePath are the directories with the programs of [DefaultImage]. The last one is that of Go's own archives.
const MachinePath = SearchPath + ":/usr/local/go/bin"

// Offline are variables with which tools fail in a second and say why where there is no network. Otherwise
// they try again for up to a minute.
var Offline = []Variable{
	{Name: "CARGO_NET_OFFLINE", Value: "true"},
	{Name: "GOPROXY", Value: "off"},
	{Name: "GOTOOLCHAIN", Value: "local"},
	{Name: "NPM_CONFIG_FETCH_RETRIES", Value: "0"},
	{Name: "PIP_RETRIES", Value: "0"},
	{Name: "UV_OFFLINE", Value: "1"},
}

// CommandVariables returns all variables of a command. Rockpool's defaults come first, then the
// image's variables, the environment's and own; later ones win. HOME, USER and LOGNAME override
// the image's. defaults are the names that still have Rockpool's value: where only the agent knows
// the image, the image's value replaces it.
func (e Environment) CommandVariables(privileged, terminal bool, own []Variable) (all, defaults []string) {
	user := cmp.Or(e.Pin.User, "runner")
	if privileged {
		user = "root"
	}
	path := SearchPath
	if e.Image == DefaultImage {
		path = MachinePath
	}
	base := []Variable{
		{Name: "PATH", Value: path},
		{Name: "SHELL", Value: Shell},
		{Name: "LANG", Value: "C.UTF-8"},
		{Name: "PYTHONUNBUFFERED", Value: "1"}, // otherwise a program that a limit ends loses what it printed
		// These libraries would use ptrace and process_vm_readv, which are refused, and say so on stderr.
		{Name: "ASAN_OPTIONS", Value: "detect_leaks=0"},
		{Name: "LSAN_OPTIONS", Value: "detect_leaks=0"},
		{Name: "OMPI_MCA_btl_vader_single_copy_mechanism", Value: "none"},
		{Name: "OMPI_MCA_btl_sm_single_copy_mechanism", Value: "none"},
	}
	if !e.Network.Access && e.Isolation != IsolationNone {
		base = append(base, Offline...)
	}
	who := []Variable{{Name: "HOME", Value: Home}, {Name: "USER", Value: user}, {Name: "LOGNAME", Value: user}}
	if terminal {
		base = append(base, Variable{Name: "TERM", Value: "xterm-256color"})
	}
	at := map[string]int{}
	for i, list := range [][]Variable{base, e.Pin.Variables, who, e.Variables, own} {
		for _, v := range list {
			entry := v.Name + "=" + v.Value
			if i == 0 {
				defaults = append(defaults, v.Name)
			} else {
				// A variable that a later list sets is no longer a default.
				defaults = slices.DeleteFunc(defaults, func(name string) bool { return name == v.Name })
			}
			if i, ok := at[v.Name]; ok {
				all[i] = entry
				continue
			}
			at[v.Name] = len(all)
			all = append(all, entry)
		}
	}
	return all, defaults
}
