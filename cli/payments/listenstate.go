package payments

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// listenState is what listen keeps: how far it is in the feed, and the secret with which it signs. There is one file for each API, account
// and receiver, so that two that follow one merchant at once do not move each other's position.
type listenState struct {
	listenIdentity

	Cursor        string `json:"cursor,omitempty"`
	SigningSecret string `json:"signingSecret"`

	path   string
	secret published.SigningSecret
}

// listenIdentity is what has a position of its own.
type listenIdentity struct {
	API       string `json:"api"`
	Merchant  string `json:"merchant"`
	Livemode  bool   `json:"livemode"`
	ForwardTo string `json:"forwardTo,omitempty"`
}

// openListenState reads the file, or makes it.
func openListenState(a *api, forwardTo string) (*listenState, error) {
	directory, err := stateDirectory()
	if err != nil {
		return nil, err
	}
	state := &listenState{listenIdentity: listenIdentity{a.base.String(), a.merchant.ID, a.livemode, forwardTo}}
	identity, err := json.Marshal(state.listenIdentity)
	if err != nil {
		return nil, fmt.Errorf("name the state of listen: %w", err)
	}
	const enough = 8
	hash := sha256.Sum256(identity)
	state.path = filepath.Join(directory, "listen-"+a.merchant.ID+"-"+hex.EncodeToString(hash[:enough])+".json")
	text, err := os.ReadFile(state.path)
	if errors.Is(err, fs.ErrNotExist) {
		state.secret = published.NewSigningSecret()
		err := state.write()
		return state, err
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of listen: %w", err)
	}
	const hint = "Remove the file to start again; that makes another signing secret too."
	if err := json.Unmarshal(text, state); err != nil {
		return nil, terminal.Hinted(hint, "the state in %s cannot be read", state.path)
	}
	if state.secret, err = published.ParseSigningSecret(state.SigningSecret); err != nil {
		return nil, terminal.Hinted(hint, "the signing secret in %s cannot be read", state.path)
	}
	return state, nil
}

// stateDirectory is where programs of this person keep their state.
func stateDirectory() (string, error) {
	if base := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, cluster.FieldOwner), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", terminal.Hinted("Set XDG_STATE_HOME.", "there is no directory for the state of listen: %w", err)
	}
	return filepath.Join(home, ".local", "state", cluster.FieldOwner), nil
}

// advance remembers a position. An empty one is the oldest event.
func (s *listenState) advance(cursor string) error {
	if cursor == s.Cursor {
		return nil
	}
	s.Cursor = cursor
	return s.write()
}

// write replaces the file as a whole, so that a crash leaves the old one or the new one.
func (s *listenState) write() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the state of listen: %w", err)
		}
	}()
	s.SigningSecret = s.secret.Reveal()
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	const ownerOnly = 0o700
	if err := os.MkdirAll(filepath.Dir(s.path), ownerOnly); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(s.path), "listen-*.tmp") // which only its owner can read
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return os.Rename(file.Name(), s.path)
}
