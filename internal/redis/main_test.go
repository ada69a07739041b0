package redis

import (
	"testing"

	"github.com/merchant-operator/merchant-operator/test/leaks"
)

func TestMain(m *testing.M) { leaks.Run(m, func() error { return nil }) }
