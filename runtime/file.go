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

// A FileMatch is an entry that a search found, or a line of one.
type FileMatch struct {
	File File
	Line int    // from 1 on; 0: it was searched by name only
	Text string // the line, or the part of a long one that has the text
}

// A FileSearch is what a search found.
type FileSearch struct {
	Matches []FileMatch     // sorted by path, element by element, then by line
	Limit   FileSearchLimit // at which it ended early; "": all was searched
	Skipped int             // files and directories that weren't searched, or not to the end
}

// FileSearchLimit is a bound at which a search ends early.
type FileSearchLimit string

// The limits.
const (
	SearchMatches FileSearchLimit = "MATCHES"
	SearchEntries FileSearchLimit = "ENTRIES"
	SearchBytes   FileSearchLimit = "BYTES"
	SearchTime    FileSearchLimit = "TIME"
	SearchDepth   FileSearchLimit = "DEPTH"
)

// A FileChange is what happened to an entry of a directory that is watched.
type FileChange struct {
	Type FileChangeType
	Path string // below that directory; of BEGAN and LOST ""
}

// FileChangeType is what happened.
type FileChangeType string

// The types.
const (
	FilesBegan  FileChangeType = "BEGAN" // comes first: what happens from now on is reported
	FileCreated FileChangeType = "CREATED"
	FileChanged FileChangeType = "CHANGED"
	FileRemoved FileChangeType = "REMOVED"
	FilesLost   FileChangeType = "LOST" // there were more changes before: list to see what is there
)
