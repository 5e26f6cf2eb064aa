package jobe

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
)

// maxSeconds bounds cputime, as it does by default in the original.
const maxSeconds = 120

// maxOutput bounds the output of a build, and of a run: an answer has it in memory.
const maxOutput = 16 << 20

// million is what MB stands for.
const million = 1e6

// parameters are what a run may have of its own; nil: the language's default. A number that is 0 or less is no bound.
type parameters struct {
	seconds   *float64 // of processor time
	memory    *float64 // MB
	disk      *float64 // MB of each file that is written
	stream    *float64 // MB of output
	processes *float64

	compile, link, interpreter, run []string
	mainClass                       string
}

// parseParameters returns the parameters of a run. Those that it doesn't know are ignored.
func parseParameters(raw json.RawMessage) (p parameters, refused *refusal) {
	if text := bytes.TrimSpace(raw); len(text) == 0 || string(text) == "null" || string(text) == "[]" {
		return p, nil // PHP writes an empty map as a list
	}
	var all struct {
		Seconds     json.RawMessage `json:"cputime"`
		Memory      json.RawMessage `json:"memorylimit"`
		Disk        json.RawMessage `json:"disklimit"`
		Stream      json.RawMessage `json:"streamsize"`
		Processes   json.RawMessage `json:"numprocs"`
		Compile     json.RawMessage `json:"compileargs"`
		Link        json.RawMessage `json:"linkargs"`
		Interpreter json.RawMessage `json:"interpreterargs"`
		Run         json.RawMessage `json:"runargs"`
		MainClass   json.RawMessage `json:"main_class"`
	}
	if json.Unmarshal(raw, &all) != nil {
		return p, bad("the attribute 'parameters' of run_spec must be an object")
	}
	p.seconds, p.memory, p.disk = number(all.Seconds), number(all.Memory), number(all.Disk)
	p.stream, p.processes = number(all.Stream), number(all.Processes)
	if p.seconds != nil && math.Floor(*p.seconds) > maxSeconds {
		return p, bad("cputime exceeds maximum allowed on this Jobe server (%d secs)", maxSeconds)
	}
	for _, list := range []struct {
		name string
		raw  json.RawMessage
		into *[]string
	}{
		{"compileargs", all.Compile, &p.compile}, {"linkargs", all.Link, &p.link},
		{"interpreterargs", all.Interpreter, &p.interpreter}, {"runargs", all.Run, &p.run},
	} {
		if *list.into, refused = arguments(list.name, list.raw); refused != nil {
			return p, refused
		}
	}
	p.mainClass, _, _ = scalar(all.MainClass)
	return p, nil
}

// number returns a number, or a text that is one; nil for anything else, which the original replaces by the default.
func number(raw json.RawMessage) *float64 {
	text, given, ok := scalar(raw)
	if !given || !ok || string(bytes.TrimSpace(raw)) == "true" {
		return nil
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(value) {
		return nil
	}
	return &value
}

// maxArguments bounds the arguments of one kind; the engine bounds those of a command.
const maxArguments = 4096

// arguments returns the arguments in a list of texts. Each text has any number of them: clients write "-x c".
func arguments(name string, raw json.RawMessage) ([]string, *refusal) {
	if text := bytes.TrimSpace(raw); len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	all := []string{}
	refused, ok := elements(raw, func(element json.RawMessage) *refusal {
		text, _, ok := scalar(element)
		if !ok {
			return bad("the parameter '%s' must be a list of strings", name)
		}
		split, err := words(text, maxArguments-len(all))
		if err != nil {
			return bad("the parameter '%s' %v", name, err)
		}
		all = append(all, split...)
		return nil
	})
	if !ok {
		return nil, bad("the parameter '%s' must be a list of strings", name)
	}
	return all, refused
}

// Defaults of parameters, and what a build has at least.
const (
	defaultSeconds, leastBuildSeconds     = 5, 2
	defaultDisk, leastBuildDisk           = 20, 20
	defaultStream                         = 2
	defaultProcesses, leastBuildProcesses = 30, 5
)

// bounds returns the limits of a run, in an environment with this limit of output.
func (p parameters) bounds(d dialect, outputLimit int64) batch.Bounds {
	return p.of(outputLimit, or(p.seconds, defaultSeconds), or(p.disk, defaultDisk), d.processes(or(p.processes, defaultProcesses)))
}

// buildBounds returns those of a build.
func (p parameters) buildBounds(d dialect, outputLimit int64) batch.Bounds {
	return p.of(outputLimit, atLeast(or(p.seconds, defaultSeconds), leastBuildSeconds), atLeast(or(p.disk, defaultDisk), leastBuildDisk),
		d.processes(atLeast(or(p.processes, defaultProcesses), leastBuildProcesses)))
}

func (p parameters) of(outputLimit int64, seconds, disk, processes float64) batch.Bounds {
	if seconds <= 0 {
		seconds = maxSeconds
	}
	whole := min(int(math.Ceil(seconds)), maxSeconds)
	b := batch.Bounds{CPUSeconds: &whole, TimeLimit: new(2 * whole)}
	output := min(outputLimit, maxOutput)
	if stream := or(p.stream, defaultStream); stream > 0 {
		output = min(output, clamp(stream*million, runtime.MinOutputLimit, maxOutput))
	}
	b.OutputLimit = &output
	if disk > 0 {
		b.FileSize = new(clamp(disk*million, 1, runtime.MaxFileSize))
	}
	if processes > 0 {
		b.Processes = new(int(clamp(processes, 1, runtime.MaxProcesses)))
	}
	return b
}

func or(given *float64, otherwise float64) float64 {
	if given != nil {
		return *given
	}
	return otherwise
}

// atLeast returns a bound of at least so much; 0 is no bound.
func atLeast(value, least float64) float64 {
	if value <= 0 {
		return value
	}
	return max(value, least)
}

func clamp(value float64, low, high int64) int64 {
	return int64(min(max(value, float64(low)), float64(high)))
}
