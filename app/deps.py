"""What a route may ask for: the settings and a service that has started."""

import asyncio
from typing import Annotated

from fastapi import Depends, Request

from app.config import Settings
from app.errors import NotReady
from app.service_api import Service


def get_settings(request: Request) -> Settings:
    """The application's settings."""
    settings: Settings = request.app.state.settings
    return settings


def get_service(request: Request) -> Service:
    """The service, once it has started; raises ``NotReady`` before that or when starting failed."""
    startup: asyncio.Task[None] = request.app.state.startup
    if not startup.done():
        raise NotReady("The engine is still loading")
    if startup.cancelled() or startup.exception() is not None:
        raise NotReady("The engine failed to start; the service's log has the reason", code="start_failed")
    service: Service = request.app.state.service
    return service


SettingsDep = Annotated[Settings, Depends(get_settings)]
ServiceDep = Annotated[Service, Depends(get_service)]
