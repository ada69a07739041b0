package main

import (
	"os/exec"
	"testing"
)

func TestQuoteSurvivesAShell(t *testing.T) {
	for _, value := range []string{
		"http://127.0.0.1:8080", "/home/jo/my projects/it's", `$HOME "x" \ y`, "a;b", "",
	} {
		output, err := exec.Command("sh", "-c", "VALUE="+quote(value)+`; printf %s "$VALUE"`).Output()
		if err != nil || string(output) != value {
			t.Errorf("quote(%q) = %s, which a shell reads as %q (%v)", value, quote(value), output, err)
		}
	}
	if plain := "redis://127.0.0.1:6379/0"; quote(plain) != plain {
		t.Errorf("quote(%q) = %s, want it unchanged: not every reader is a shell", plain, quote(plain))
	}
}
