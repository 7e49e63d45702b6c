"""SaslHandshake (17): choose the mechanism by which the client will authenticate.

After v0 the SASL tokens follow bare on the connection, after v1 in SaslAuthenticate requests (KIP-152). There can
hardly be a v2: clients up to 2.4 negotiate the version wrongly (KAFKA-9577).
"""

from __future__ import annotations

from ottla.wire.schema import STRING, Request, Response, array, int16, string


class SaslHandshakeRequest(Request, api_key=17, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Response, api_key=17, versions="0-1"):
    error_code: int = int16()
    mechanisms: list[str] = array(STRING)
