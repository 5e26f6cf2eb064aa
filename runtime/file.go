package runtime

import "time"

// A File is an entry of a runner's file system. Names are the runner's bytes, which need not be
// valid UTF-8.
type File struct {
	Runner     RunnerID
	Path       string // relative to the listed directory, or as requested
	At         string // absolute path in the runner
	Type       FileType
	Size       int64 // bytes
	ModifiedAt time.Time
	Mode       uint32 // permission bits with setuid, setgid and sticky: 0 to 07777
	Owner      string // the name from the runner's /etc/passwd, or the number
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

// A FileWrite is a file or directory to create. A Mode of 0 is 0644 for a file and 0755 for a
// directory. Missing parents are created as directories.
type FileWrite struct {
	Path      string
	Data      []byte
	Directory bool
	Mode      uint32
}

// A FileFailure is a file that could not be written, and the reason.
type FileFailure struct {
	Path    string
	Message string
}

// A FileMatch is an entry that a search found, or a line of one.
type FileMatch struct {
	File File
	Line int    // from 1; 0 means the search was by name only
	Text string // the line, or the matching part of a long line
}

// A FileSearch is the result of a search.
type FileSearch struct {
	Matches []FileMatch     // ordered by path, element by element, then by line
	Limit   FileSearchLimit // that ended it early; "" means everything was searched
	Skipped int             // files and directories that weren't searched completely
}

// FileSearchLimit is a limit that ends a search early.
type FileSearchLimit string

// The limits.
const (
	SearchMatches FileSearchLimit = "MATCHES"
	SearchEntries FileSearchLimit = "ENTRIES"
	SearchBytes   FileSearchLimit = "BYTES"
	SearchTime    FileSearchLimit = "TIME"
	SearchDepth   FileSearchLimit = "DEPTH"
)

// A FileChange is a change of an entry in a watched directory.
type FileChange struct {
	Type FileChangeType
	Path string // relative to that directory; "" with BEGAN and LOST
}

// FileChangeType is what happened.
type FileChangeType string

// The types.
const (
	FilesBegan  FileChangeType = "BEGAN" // the first: later changes are reported
	FileCreated FileChangeType = "CREATED"
	FileChanged FileChangeType = "CHANGED"
	FileRemoved FileChangeType = "REMOVED"
	FilesLost   FileChangeType = "LOST" // earlier changes were dropped: list the directory again
)
