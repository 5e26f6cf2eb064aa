package attack

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/doctor/attack/world"
)

// corpus has a file for each topic. In its texts, {name} stands for a word of the file, for a value in
// a row of each, or for an address of the simulated network. Names of the Bait stay until the attack
// runs.
//
//go:embed corpus
var corpus embed.FS

// A topic is a file of the corpus.
type topic struct {
	Class   Class // of attacks that name none
	Words   map[string]string
	Attacks []struct {
		Attack `yaml:",inline"`
		Each   []map[string]string // the attack exists once for each row
	}
}

// load returns the attacks of a topic. It panics if the file is invalid, which a test of the corpus
// excludes.
func load(name string) (all []Attack) {
	text, err := corpus.ReadFile("corpus/" + name + ".yaml")
	if err != nil {
		panic(err)
	}
	var t topic
	if err := yaml.UnmarshalWithOptions(text, &t, yaml.Strict()); err != nil {
		panic(fmt.Errorf("%s.yaml: %w", name, err))
	}
	for _, row := range t.Attacks {
		if row.Each == nil {
			row.Each = []map[string]string{nil}
		}
		row.Attack.Class = cmp.Or(row.Attack.Class, t.Class)
		for _, values := range row.Each {
			all = append(all, row.Attack.replaced(t.Words).replaced(values).replaced(addresses).resolved())
		}
	}
	return all
}

// replaced returns the attack with words in place of their names.
func (a Attack) replaced(words map[string]string) Attack {
	var pairs []string
	for name, word := range words {
		pairs = append(pairs, "{"+name+"}", word)
	}
	replace := strings.NewReplacer(pairs...).Replace
	a.Name, a.Tries, a.Held, a.Never, a.GVisor, a.Defence = replace(a.Name), replace(a.Tries), replace(a.Held), replace(a.Never), replace(a.GVisor), Defence(replace(string(a.Defence)))
	a.Steps = slices.Clone(a.Steps)
	for i := range a.Steps {
		s := &a.Steps[i]
		s.script, s.path, s.text, s.prober = replace(s.script), replace(s.path), replace(s.text), replace(s.prober)
		s.command = slices.Clone(s.command)
		for j, arg := range s.command {
			s.command[j] = replace(arg)
		}
	}
	return a
}

// resolved returns the attack with the prober's command lines as commands. In Held, {others} is the
// number of addresses that the last ask contacts after the first one.
func (a Attack) resolved() Attack {
	for i := range a.Steps {
		s := &a.Steps[i]
		if s.prober == "" {
			continue
		}
		args := strings.Fields(s.prober)
		if args[0] == "ask" {
			args = append(args[:1:1], asked(args[1:])...)
			a.Held = strings.ReplaceAll(a.Held, "{others}", strconv.Itoa(len(args)-2))
		}
		s.command, s.prober = append([]string{proberPath}, args...), ""
	}
	return a
}

// asked returns the prober's arguments for destinations such as tcp/192.0.2.1,192.0.2.2. An address without
// a port gets the one at which the simulated network responds.
func asked(destinations []string) (all []string) {
	for _, to := range destinations {
		network, list, _ := strings.Cut(to, "/")
		for at := range strings.SplitSeq(list, ",") {
			if _, _, err := net.SplitHostPort(at); err != nil {
				at = net.JoinHostPort(at, strconv.Itoa(world.Port))
			}
			all = append(all, network+"/"+at)
		}
	}
	return all
}

// gateway is the machine's address for runners with network access.
const gateway = "10.213.0.1"

// addresses has words for addresses and lists of addresses.
var addresses = map[string]string{
	"public4": world.Public4, "public6": world.Public6, "other": world.Other4, "resolver": world.Resolver,
	"lan4": world.LAN4, "lan6": world.LAN6, "metadata": world.Metadata, "gateway": gateway,
	"machine4": world.Machine4, "machine6": world.Machine6, "machineLAN4": world.MachineLAN4,
	"machine":  strings.Join([]string{world.Machine4, world.Machine6, world.MachineLAN4, world.MachineLAN6, world.MachineLink, gateway}, ","),
	"private":  strings.Join(world.Private, ","),
	"clouds":   strings.Join(world.Clouds, ","),
	"carriers": strings.Join(world.Carriers, ","),
	"mapped":   fmt.Sprint(MappedFirst, " ", MappedLast), // the range of ports
}

// UnmarshalYAML reads a step: one action, and how it is done.
func (s *Step) UnmarshalYAML(unmarshal func(any) error) error {
	var in struct {
		Shell, Probe, Call, Ask, Python, Cold, Upload, Read, List, Find, Heard string

		Command                       []string
		Next                          bool
		Text                          string // of an upload
		Zeros                         int    // MiB of zeros to upload, instead of text
		Root, Other, Behind, Terminal bool
		Within, Times                 int
		Limits                        *client.LimitsInput
	}
	if err := unmarshal(&in); err != nil {
		return err
	}
	switch {
	case in.Shell != "":
		*s = shell(in.Shell)
	case in.Probe != "":
		*s = Step{prober: in.Probe, seconds: defaultSeconds}
	case in.Call != "":
		*s = Step{prober: "call " + in.Call, seconds: defaultSeconds}
	case in.Ask != "": // each address may stay silent for 10 seconds
		*s = Step{prober: "ask " + in.Ask, seconds: 30}
	case in.Python != "":
		*s = python(in.Python)
	case in.Cold != "":
		*s = command("python3", "-B", "-c", in.Cold)
	case in.Command != nil:
		*s = command(in.Command...)
	case in.Upload != "":
		*s = upload(in.Upload, in.Text+string(make([]byte, in.Zeros<<20)))
	case in.Read != "":
		*s = read(in.Read)
	case in.List != "":
		*s = Step{kind: lists, path: in.List}
	case in.Find != "":
		*s = Step{kind: finds, path: "/workspace", text: in.Find}
	case in.Heard != "":
		*s = Step{kind: hears, text: in.Heard}
	case in.Next:
		*s = Step{kind: nexts}
	default:
		return errors.New("a step needs an action")
	}
	s.root, s.other, s.terminal, s.repeat, s.limits = in.Root, in.Other, in.Terminal, in.Times, in.Limits
	if in.Within > 0 {
		s.seconds = in.Within
	}
	if in.Behind {
		s.kind = starts
	}
	return nil
}
