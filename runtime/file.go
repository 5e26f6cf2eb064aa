package runtime

import "time"

// A File is an entry of a runner's file system. Names are the bytes that the
// runner has; they need not be valid UTF-8.
type File struct {
	Runner     RunnerID
	Path       string // below the directory that was asked for, or as it was asked for
	At         string // the path by which the runner has it
	Type       FileType
	Size       int64
	ModifiedAt time.Time
	Mode       uint32 // permission bits with setuid, setgid and sticky: 0 to 07777
	Owner      string // a name where the runner's /etc/passwd has one, else the number
	Group      string
	LinkTarget string // of a LINK
}

// FileType is what an entry is.
type FileType string

// The types.
const (
	FileRegular   FileType = "FILE"
	FileDirectory FileType = "DIRECTORY"
	FileLink      FileType = "LINK"
	FileOther     FileType = "OTHER" // FIFO, socket or device
)

// A FileWrite is a file or directory to be made. A file is root-owned with
// Mode (0: 0744), a directory root-owned 0755 unless Mode says otherwise;
// missing parents are made as directories.
type FileWrite struct {
	Path      string
	Data      []byte
	Directory bool
	Mode      uint32
}

// A FileFailure is a file that could not be written, and why.
type FileFailure struct {
	Path    string
	Message string
}
