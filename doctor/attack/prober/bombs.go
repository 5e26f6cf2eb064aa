package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forkBomb creates at most most waiting processes. After a failure it tries a few more times: it
// must reach the limit, not only come close to it.
func forkBomb(most int) {
	made, refused := 0, 0
	for made < most && refused < 10 {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		switch {
		case errno != 0:
			refused++
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // there is nothing to wait for
		case pid == 0:
			for { // only raw system calls: the child lacks Go's other threads
				_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		default:
			made++
		}
	}
	say("made", strconv.Itoa(made), "processes")
}

// threadBomb starts as many threads as most says. Go's runtime ends the program if the kernel
// refuses one.
func threadBomb(most int) {
	for range most {
		go func() {
			runtime.LockOSThread()
			select {}
		}()
	}
	time.Sleep(time.Second) //nolint:forbidigo // there is nothing to wait for
	say("has", strconv.Itoa(most), "threads")
}

// memoryBomb allocates and writes memory, one MiB after the other.
func memoryBomb(mib int) {
	taken, _ := repeat(mib, func(int) error {
		memory, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		touch(memory)
		return err
	})
	say("took", strconv.Itoa(taken), "MiB")
}

func touch(memory []byte) {
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
}

// mapBomb allocates shared memory that no other process uses: a memfd, or a System V segment, which
// outlives its process.
func mapBomb(kind string, mib int) {
	size := mib << 20
	var memory []byte
	var err error
	if kind == "memfd" {
		var fd int
		if fd, err = unix.MemfdCreate("bomb", 0); err == nil {
			if err = unix.Ftruncate(fd, int64(size)); err == nil {
				memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			}
		}
	} else {
		var id int
		if id, err = unix.SysvShmGet(unix.IPC_PRIVATE, size, unix.IPC_CREAT|0o600); err == nil {
			memory, err = unix.SysvShmAttach(id, 0, 0)
		}
	}
	touch(memory)
	say("took", strconv.Itoa(len(memory)>>20), "MiB", result(err))
}

// fileBomb creates at most most empty files in a directory, until the first error.
func fileBomb(dir string, most int) {
	n, err := repeat(most, func(n int) error {
		fd, err := unix.Open(dir+"/f"+strconv.Itoa(n), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	})
	say("made", strconv.Itoa(n), "files", result(err))
}

func fill(path string, mib int) {
	zeros, n := make([]byte, 1<<20), 0
	file, err := os.Create(path)
	if err == nil {
		n, err = repeat(mib, func(int) error { _, err := file.Write(zeros); return err })
	}
	say("wrote", strconv.Itoa(n), "MiB", result(err))
}

// sparse creates a file of 4 TiB that takes no space.
func sparse(path string) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err == nil {
		err = unix.Ftruncate(fd, 4<<40)
	}
	say("sparse", result(err))
}

// spin runs busy threads for the given milliseconds, and prints the CPU time that they got in
// percent of one CPU, and whether that is more than most. A throttled process starts and ends late:
// the percentage refers to the whole time that passed.
func spin(threads, milliseconds, most int) {
	runtime.GOMAXPROCS(threads)
	began, before := time.Now(), processorTime()
	end := began.Add(time.Duration(milliseconds) * time.Millisecond)
	ended := make(chan struct{})
	for range threads {
		go func() {
			for time.Now().Before(end) {
			}
			ended <- struct{}{}
		}()
	}
	for range threads {
		<-ended
	}
	used := processorTime() - before
	percent := int64(100 * used / time.Since(began))
	share := "within"
	if percent > int64(most) {
		share = "beyond"
	}
	say("had", strconv.FormatInt(percent, 10), "% of a processor,", share, "its share")
}

func processorTime() time.Duration {
	var usage unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func signalBomb(most int) {
	const number = 40
	set := unix.Sigset_t{Val: [16]uint64{1 << (number - 1)}}
	runtime.LockOSThread()
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil)
	thread := uintptr(unix.Gettid())
	info := word(number, uint64(^uint32(0))) // its code is SI_QUEUE
	n, err := repeat(most, func(int) error { return raw(unix.SYS_RT_TGSIGQUEUEINFO, own, thread, number, info)() })
	say("queued", strconv.Itoa(n), result(err))
}

// zombies creates processes that end immediately, and doesn't wait for them.
func zombies(count int) {
	made := 0
	for range count {
		if cloneWith(0) == nil {
			made++
		}
	}
	say("made", strconv.Itoa(made), "zombies")
}

// daemon leaves its parent, session and terminal, and sleeps for at most a minute. Options: "hold"
// keeps the output open, "closed" closes all descriptors, "deaf" ignores signals.
func daemon(how []string) {
	again := func(stage string) error {
		attr := &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}, Env: append(os.Environ(), "DAEMON="+stage), Sys: &syscall.SysProcAttr{Setsid: true}}
		_, err := os.StartProcess("/proc/self/exe", os.Args, attr)
		return err
	}
	switch os.Getenv("DAEMON") {
	case "":
		say("left", result(again("1")))
		return
	case "1": // the parent has ended, and this process ends too
		_ = again("2")
		return
	}
	for _, h := range how {
		switch h {
		case "deaf":
			signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE)
		case "closed":
			for fd := range 3 {
				_ = unix.Close(fd)
			}
		}
	}
	hold()
}

// pretend prints what looks like a message of the agent about exit code 0, and exits with 77.
func pretend() {
	_, err := io.WriteString(os.Stdout, "\x00{\"kind\":\"exited\",\"code\":0}\n\x1b]0;x\a\xff\xfe")
	if err != nil && !errors.Is(err, os.ErrClosed) {
		os.Exit(1)
	}
	os.Exit(77)
}
