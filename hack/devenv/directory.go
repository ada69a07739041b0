package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// claim makes .dev this run's own and empties it of what an earlier run has left. The lock ends with the process,
// however that ends, so a killed run never stands in the way of the next one.
func claim(directory string) (path string, release func(), err error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return "", nil, fmt.Errorf("make %s: %w", directory, err)
	}
	lock, err := os.OpenFile(filepath.Join(directory, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("open the lock: %w", err)
	}
	release = func() { _ = lock.Close() }
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer release()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return "", nil, fmt.Errorf("it is running here already (process %s): stop that one first, or use it: . .dev/env", owner(lock))
		}
		return "", nil, fmt.Errorf("lock %s: %w", directory, err)
	}
	if err := empty(directory); err != nil {
		release()
		return "", nil, err
	}
	if err := errors.Join(
		lock.Truncate(0),
		writeString(lock, strconv.Itoa(os.Getpid())),
		os.Mkdir(filepath.Join(directory, "logs"), 0o700),
	); err != nil {
		release()
		return "", nil, fmt.Errorf("prepare %s: %w", directory, err)
	}
	return directory, release, nil
}

func owner(lock *os.File) string {
	text := make([]byte, 20)
	n, _ := lock.ReadAt(text, 0)
	return strings.TrimSpace(string(text[:n]))
}

func writeString(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// empty removes everything but the lock.
func empty(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("read %s: %w", directory, err)
	}
	for _, entry := range entries {
		if entry.Name() == "lock" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(directory, entry.Name())); err != nil {
			return fmt.Errorf("clean up after an earlier run: %w", err)
		}
	}
	return nil
}
