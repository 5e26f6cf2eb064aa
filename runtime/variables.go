package runtime

import (
	"cmp"
	"slices"
)

// Workspace is the directory of a runner that its programs write to, by contract.
const Workspace = "/workspace"

// Shell is what a shell string is handed to, as one argument.
const Shell = "/bin/sh"

// CommandVariables returns a command's whole environment: ours, then the image's, then the
// environment's, then the execution's own; later ones win. But who runs it, and where that user is
// at home, isn't the image's to say. Defaults are the names that have our value: where only the agent knows
// the image, the image's own value replaces it.
func (e Environment) CommandVariables(privileged, terminal bool, own []Variable) (all, defaults []string) {
	user := cmp.Or(e.Pin.User, "runner")
	if privileged {
		user = "root"
	}
	base := []Variable{
		{Name: "PATH", Value: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		{Name: "SHELL", Value: Shell},
		{Name: "LANG", Value: "C.UTF-8"},
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
