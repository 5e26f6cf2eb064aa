package jobe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
)

// maxSeconds bounds cputime, in seconds. It is Jobe's default.
const maxSeconds = 120

// maxOutput bounds the output of a build and of a run, in bytes, since an answer is assembled in
// memory.
const maxOutput = 16 << 20

// million is the number of bytes in Jobe's MB.
const million = 1e6

// parameters are a run's own limits and arguments; nil means the language's default. A number of 0
// or less means no limit.
type parameters struct {
	seconds   *float64 // of processor time
	memory    *float64 // MB
	disk      *float64 // MB of each written file
	stream    *float64 // MB of output
	processes *float64

	compile, link, interpreter, run []string
	mainClass                       string
}

// parseParameters parses the parameters of a run. It ignores unknown ones.
func parseParameters(raw json.RawMessage) (p parameters, refused *refusal) {
	if text := bytes.TrimSpace(raw); len(text) == 0 || string(text) == "null" || string(text) == "[]" {
		return p, nil // PHP encodes an empty map as a list
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

// number returns a number, or the number in a text. It is nil for everything else, which Jobe
// replaces by the default.
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

// maxArguments bounds the arguments of one kind. The engine bounds those of a command.
const maxArguments = 4096

// arguments returns the arguments in a list of texts. Each text may have several arguments, since
// clients send "-x c".
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

// Defaults of parameters, and the minimum for builds: seconds, MB, MB, processes.
const (
	defaultSeconds, leastBuildSeconds     = 5, 60
	defaultDisk, leastBuildDisk           = 20, 20
	defaultStream                         = 2
	defaultProcesses, leastBuildProcesses = 30, 5
)

// A ceiling is what an environment allows and how fast its programs are.
type ceiling struct {
	output int64   // bytes
	pace   float64 // wall time for each second of processor time, if nothing else runs; at least 1
}

// The wall limit is meant for programs that sleep or wait. So it is long enough for a program that
// uses all its CPU time on shared CPUs.
const (
	wallFactor  = 2*programsPerCPU + 1
	wallReserve = 40 // seconds
)

func (p parameters) bounds(d dialect, most ceiling) batch.Bounds {
	return p.of(most, or(p.seconds, defaultSeconds), or(p.disk, defaultDisk), d.processes(or(p.processes, defaultProcesses)))
}

func (p parameters) buildBounds(d dialect, most ceiling) batch.Bounds {
	return p.of(most, atLeast(or(p.seconds, defaultSeconds), leastBuildSeconds), atLeast(or(p.disk, defaultDisk), leastBuildDisk),
		d.processes(atLeast(or(p.processes, defaultProcesses), leastBuildProcesses)))
}

// of returns these limits as Bounds. If seconds isn't positive, the limit is maxSeconds. Other
// values that aren't positive set no limit.
func (p parameters) of(most ceiling, seconds, disk, processes float64) batch.Bounds {
	if seconds <= 0 {
		seconds = maxSeconds
	}
	whole := min(int(math.Ceil(seconds)), maxSeconds)
	b := batch.Bounds{CPUSeconds: &whole, TimeLimit: new(int(clamp(math.Ceil(wallFactor*most.pace*float64(whole))+wallReserve, 0, int64(runtime.MaxTimeLimit/time.Second))))}
	output := min(most.output, maxOutput)
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

// or returns the given value, or otherwise if it is nil.
func or(given *float64, otherwise float64) float64 {
	if given != nil {
		return *given
	}
	return otherwise
}

// atLeast raises a limit to a minimum. A limit of 0 means none and is unchanged.
func atLeast(value, least float64) float64 {
	if value <= 0 {
		return value
	}
	return max(value, least)
}

// clamp returns value within low and high, without its fraction.
func clamp(value float64, low, high int64) int64 {
	return int64(min(max(value, float64(low)), float64(high)))
}

var (
	errOpenQuote = errors.New("has a quote that isn't closed")
	errManyWords = fmt.Errorf("has more than %d arguments", maxArguments)
)

// words splits a text into at most that many arguments, as a shell does with blanks, quotes and
// backslashes. All other characters, such as "$", "*" and ";", have no special meaning.
func words(text string, most int) ([]string, error) {
	var (
		all    []string
		word   strings.Builder
		within bool // in an argument
		quote  rune // the open one, or 0
		escape bool // after a backslash
	)
	for _, c := range text {
		switch {
		// As in a shell: between double quotes, a backslash escapes only these characters.
		case escape:
			if quote == '"' && !strings.ContainsRune("\"\\$`\n", c) {
				word.WriteByte('\\')
			}
			word.WriteRune(c)
			escape = false
		case c == '\\' && quote != '\'':
			escape, within = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, within = c, true
		case strings.ContainsRune(" \t\r\n", c):
			if within {
				if len(all) == most {
					return nil, errManyWords
				}
				all = append(all, word.String())
				word.Reset()
			}
			within = false
		default:
			word.WriteRune(c)
			within = true
		}
	}
	if quote != 0 || escape {
		return nil, errOpenQuote
	}
	if within {
		all = append(all, word.String())
	}
	if len(all) > most {
		return nil, errManyWords
	}
	return all, nil
}
