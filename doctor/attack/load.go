package attack

import (
	"cmp"
	"embed"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/rockpool/rockpool/doctor/attack/world"
)

// corpus has a file for each topic. In its texts, {name} stands for a word of the file, for a value in
// a row of each, or for a word of everywhere. Names of the Bait stay until the attack runs.
//
//go:embed corpus
var corpus embed.FS

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
			all = append(all, row.Attack.replaced(t.Words).replaced(values).replaced(everywhere).resolved())
		}
	}
	return all
}

func (a Attack) replaced(words map[string]string) Attack {
	var pairs []string
	for name, word := range words {
		pairs = append(pairs, "{"+name+"}", word)
	}
	replace := strings.NewReplacer(pairs...).Replace
	a.Name, a.Tries, a.Held, a.Never, a.GVisor, a.Defence = replace(a.Name), replace(a.Tries), replace(a.Held), replace(a.Never), replace(a.GVisor), replace(a.Defence)
	a.Steps = slices.Clone(a.Steps)
	for i := range a.Steps {
		s := &a.Steps[i]
		s.script, s.path, s.text, s.prober = replace(s.script), replace(s.path), replace(s.text), replace(s.prober)
		s.command = slices.Clone(s.command)
		for j, arg := range s.command {
			s.command[j] = replace(arg)
		}
		s.layer = slices.Clone(s.layer)
		for j, e := range s.layer {
			s.layer[j] = entry{replace(e.Name), replace(e.Link), replace(e.Hard)}
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

// everywhere has words for every topic: addresses, lists of addresses, and texts that are too long for a
// file, or invalid there.
var everywhere = map[string]string{
	"public4": world.Public4, "public6": world.Public6, "other": world.Other4, "resolver": world.Resolver,
	"lan4": world.LAN4, "lan6": world.LAN6, "metadata": world.Metadata, "gateway": gateway,
	"machine4": world.Machine4, "machine6": world.Machine6, "machineLAN4": world.MachineLAN4,
	"machine":  strings.Join([]string{world.Machine4, world.Machine6, world.MachineLAN4, world.MachineLAN6, world.MachineLink, gateway}, ","),
	"private":  strings.Join(world.Private, ","),
	"clouds":   strings.Join(world.Clouds, ","),
	"carriers": strings.Join(world.Carriers, ","),
	"mapped":   fmt.Sprint(MappedFirst, " ", MappedLast), // the range of ports

	"megabyte": strings.Repeat("x", 1<<20), "arguments": strings.Repeat(`, "x"`, 100_000), "long": strings.Repeat("x/", 4000),
	"invalid": "\xff\xfe", "garbage": strings.Repeat("\x00\xff\x7fGARBAGE", 4000),
	"braces": strings.Repeat("{", 1<<20), "brackets": strings.Repeat("[", 1<<20-2),
}
