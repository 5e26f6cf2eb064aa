package runtime

import "cmp"

// Shell is what a shell string is handed to, as one argument.
const Shell = "/bin/sh"

// CommandVariables returns a command's whole environment: ours, then the image's, then the
// environment's, then the execution's own; later ones win. But who runs it, and where that user is
// at home, isn't the image's to say.
func (e Environment) CommandVariables(privileged, terminal bool, own []Variable) []string {
	user := cmp.Or(e.Pin.User, "runner")
	if privileged {
		user = "root"
	}
	base := []Variable{
		{Name: "PATH", Value: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		{Name: "SHELL", Value: Shell},
		{Name: "LANG", Value: "C.UTF-8"},
	}
	who := []Variable{{Name: "HOME", Value: "/workspace"}, {Name: "USER", Value: user}, {Name: "LOGNAME", Value: user}}
	if terminal {
		base = append(base, Variable{Name: "TERM", Value: "xterm-256color"})
	}
	at := map[string]int{}
	var all []string
	for _, list := range [][]Variable{base, e.Pin.Variables, who, e.Variables, own} {
		for _, v := range list {
			entry := v.Name + "=" + v.Value
			if i, ok := at[v.Name]; ok {
				all[i] = entry
				continue
			}
			at[v.Name] = len(all)
			all = append(all, entry)
		}
	}
	return all
}
