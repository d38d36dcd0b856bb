"""The command line at a cluster that wants tokens."""

from __future__ import annotations

from pathlib import Path

from shoal.broker.config import BrokerConfig, Listener, OAuthSettings
from shoal.testing.broker import Broker
from tests.cli.conftest import Run
from tests.peers.identity_provider import AUDIENCE, ISSUER, IdentityProvider


def test_a_profile_brings_a_token_and_nobody_else_reads_its_secret(
    shoal: Run, tmp_path: Path
) -> None:
    profiles = tmp_path / "profiles.toml"
    with IdentityProvider() as provider:
        profiles.write_text(
            f"""[tokens]
            security_protocol = "SASL_PLAINTEXT"
            sasl_mechanism = "OAUTHBEARER"
            sasl_oauthbearer_token_endpoint_url = "{provider.token_url}"
            sasl_oauthbearer_client_id = "app"
            sasl_oauthbearer_client_secret = "client-s3cret"
            """
        )
        oauth = OAuthSettings(jwks=provider.jwks_url, issuer=ISSUER, audience=(AUDIENCE,))
        listener = Listener(port=0, sasl=("OAUTHBEARER",))
        config = BrokerConfig(oauth=oauth)
        with Broker(config=config, listeners=(listener,), topics=["t"]) as guarded:
            environment = {
                "SHOAL_PROFILES": str(profiles),
                "SHOAL_PROFILE": "tokens",
                "SHOAL_BOOTSTRAP": guarded.bootstrap_servers,
            }
            profiles.chmod(0o644)
            refused = shoal("topic", "list", env=environment)
            assert "others can read it" in refused.stderr
            profiles.chmod(0o600)
            shown = shoal("topic", "list", "--verbose", env=environment)
            assert shown.returncode == 0, shown.stderr
            assert "t" in shown.stdout.split()
            assert "client-s3cret" not in shown.stderr
            assert "eyJ" not in shown.stderr
