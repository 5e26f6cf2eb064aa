package runtime

import (
	"cmp"
	"slices"
)

// Workspace is the directory of a runner that its programs write to, by contract.
const Workspace = "/workspace"

// Shell is the program that runs a shell string, given to it as one argument.
const Shell = "/bin/sh"

// CommandVariables returns all variables of a command. Rockpool's defaults come first, then the
// image's variables, the environment's and own; later ones win. HOME, USER and LOGNAME override
// the image's. defaults are the names that still have Rockpool's value: where only the agent knows
// the image, the image's value replaces it.
func (e Environment) CommandVariables(privileged, terminal bool, own []Variable) (all, defaults []string) {
	user := cmp.Or(e.Pin.User, "runner")
	if privileged {
		user = "root"
	}
	base := []Variable{
		{Name: "PATH", Value: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		{Name: "SHELL", Value: Shell},
		{Name: "LANG", Value: "C.UTF-8"},
		{Name: "PYTHONUNBUFFERED", Value: "1"}, // otherwise a program that a limit ends loses what it printed
	}
	who := []Variable{{Name: "HOME", Value: Workspace}, {Name: "USER", Value: user}, {Name: "LOGNAME", Value: user}}
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
