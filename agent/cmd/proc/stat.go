package proc

import (
	"bytes"
	"strconv"
	"time"
)

// tick is the unit of processor times in /proc: USER_HZ, 100 on every Linux.
const tick = 10 * time.Millisecond

// ReadStat returns a process's processor time, including that of the children that it waited
// for, and its number of threads, 0 for a dead one. Both are 0 if it can't be read.
func ReadStat(pid int) (cpu time.Duration, threads int) {
	var buf [1024]byte
	text, err := read("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return 0, 0
	}
	return parseStat(text)
}

// parseStat parses /proc/PID/stat. The name, which may hold anything, ends with the last
// parenthesis.
func parseStat(text []byte) (cpu time.Duration, threads int) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 18 {
		return 0, 0
	}
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		ticks, _ := strconv.ParseInt(string(field), 10, 64)
		cpu += time.Duration(ticks) * tick
	}
	if state := fields[0][0]; state != 'Z' && state != 'X' {
		threads, _ = strconv.Atoi(string(fields[17]))
	}
	return cpu, threads
}
