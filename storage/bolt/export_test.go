package bolt

import "os"

// SetOpenFile replaces the opening of files until restore is called.
func SetOpenFile(open func(string, int, os.FileMode) (*os.File, error)) (restore func()) {
	old := openFile
	openFile = open
	return func() { openFile = old }
}

// Fd returns the descriptor of the open file, for tests to break.
func (s *Store) Fd() int { return int(s.handle.file.Fd()) }
